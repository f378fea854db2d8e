"""The words of a conversation: message, reply, usage, and what can go wrong.

Shared by this package and by all who ask a model. Everything here is plain data.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any, Literal

Role = Literal["system", "user", "assistant"]


class ChatError(RuntimeError):
    """A server did not answer as a chat server does; the text says how, and never holds a key."""


class BudgetSpent(ChatError):
    """The next request might cost more than is left. Nothing was sent."""


class NotRecorded(ChatError):
    """A cassette has no answer to this request."""


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation."""

    role: Role
    content: str


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens that one request cost. `assumed` says that the server did not tell, and these are the
    most that it can have been."""

    prompt: int = 0
    completion: int = 0
    assumed: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """One sample. `text` is empty where the model refused, and `refusal` then has its words.
    `finish` is the server's reason for the end: "stop", "length" for a reply that was cut off."""

    text: str
    finish: str = "stop"
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """All that decides an answer but for who gives it."""

    model: str
    messages: tuple[Message, ...]
    n: int
    temperature: float
    seed: int
    max_tokens: int
    schema: Mapping[str, Any] | None = None

    @property
    def key(self) -> str:
        """sha256 of the canonical JSON: what cache and cassettes file the answer under."""
        return sha256(canonical(asdict(self)).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server made of one request: its samples, and what they cost together."""

    replies: tuple[Reply, ...]
    usage: Usage


def canonical(value: Any) -> str:
    """JSON that two machines write alike."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def as_document(answer: Answer) -> dict[str, Any]:
    """The answer as plain data, for `read_answer`."""
    return asdict(answer)


def read_answer(document: Any) -> Answer:
    """The answer that `as_document` wrote. Raises ValueError for anything else."""
    try:
        replies = tuple(Reply(**_texts(each)) for each in _list(document["replies"]))
        usage = Usage(**document["usage"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"no answer of a chat: {error}") from None
    if not all(type(n) is int and n >= 0 for n in (usage.prompt, usage.completion)):
        raise ValueError("no answer of a chat: a count of tokens that is none")
    return Answer(replies, usage)


def _list(value: Any) -> Sequence[Any]:
    if not isinstance(value, list) or not value:
        raise TypeError("no replies")
    return value


def _texts(value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        raise TypeError("a reply that is no text")
    return value
