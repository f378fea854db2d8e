"""A chat client of the scripted server, which waits for nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hgemm_packs.generator.llm.chat import Chat, Patience
from hgemm_packs.generator.llm.key import Key
from hgemm_packs.generator.llm.server import Server

from .scripted_server import Scripted

KEY = "sk-scripted-0123456789abcdef"

Asks = Callable[..., Chat]


@pytest.fixture
def waits() -> list[float]:
    """The seconds that clients would have waited."""
    return []


@pytest.fixture
def client(waits: list[float]) -> Asks:
    """`client(server, ...)` is a chat with that server; more arguments are Chat's own."""
    pytest.importorskip("openai")

    def make(server: Scripted, *, timeout_s: float = 5.0, tries: int = 3, **more: Any) -> Chat:
        key = Key(KEY)
        patience = Patience(tries, sleep=waits.append)
        transport = Server(server.url, key, timeout_s=timeout_s)
        return Chat(transport, "scripted", key, patience=patience, **more)

    return make
