"""Cache and cassettes: what was answered once is answered again, and nothing else is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hgemm_packs.generator.llm.chat import Chat
from hgemm_packs.generator.llm.files import Cache, Player, Recorder
from hgemm_packs.generator.llm.words import Message, NotRecorded, Reply

from .scripted_server import say, serve, status

ASKED = [Message("user", "A tile size?")]


def test_what_is_cached_is_not_asked_again(client: Any, tmp_path: Path) -> None:
    with serve([say("1"), say("2"), say("3")]) as server:
        for _ in range(2):  # a new process
            chat = client(server, cache=Cache(tmp_path))
            assert chat.complete(ASKED) == [Reply("1")]
            assert chat.complete(ASKED, seed=1) == [Reply("2")]
            assert chat.complete(ASKED, temperature=0.5) == [Reply("3")]
    assert len(server.bodies) == 3


@pytest.mark.parametrize("text", ["", "{", "[]", '{"key": "other"}', "[" * 50_000])
def test_a_damaged_entry_is_asked_for_again(client: Any, tmp_path: Path, text: str) -> None:
    with serve([say("1"), say("2")]) as server:
        client(server, cache=Cache(tmp_path)).complete(ASKED)
        (entry,) = tmp_path.glob("*/*.json")
        entry.write_text(text)
        cache = Cache(tmp_path)
        assert client(server, cache=cache).complete(ASKED) == [Reply("2")]
        assert cache.refused == 1
        assert client(server, cache=cache).complete(ASKED) == [Reply("2")]


def test_an_entry_that_is_another_requests_is_refused(client: Any, tmp_path: Path) -> None:
    with serve([say("1"), say("2"), say("3")]) as server:
        chat = client(server, cache=Cache(tmp_path))
        chat.complete(ASKED)
        (first,) = tmp_path.glob("*/*.json")
        data = first.read_bytes()
        chat.complete(ASKED, seed=1)
        (second,) = set(tmp_path.glob("*/*.json")) - {first}
        second.write_bytes(data)
        assert chat.complete(ASKED, seed=1) == [Reply("3")]


def test_a_failure_is_not_cached(client: Any, tmp_path: Path) -> None:
    with serve([status(400), say("2")]) as server:
        chat = client(server, cache=Cache(tmp_path))
        with pytest.raises(RuntimeError):
            chat.complete(ASKED)
        assert chat.complete(ASKED) == [Reply("2")]


def test_a_cassette_replays_the_conversation_without_a_server(client: Any, tmp_path: Path) -> None:
    """Also where the same question had two answers."""
    path = tmp_path / "talk.jsonl"
    with serve([say("1"), say("2"), say("3")]) as server:
        chat = client(server, recorder=Recorder(path))
        heard = [chat.complete(ASKED), chat.complete(ASKED), chat.complete(ASKED, seed=4)]
    replay = Chat(None, "scripted", player=Player(path))
    assert [replay.complete(ASKED), replay.complete(ASKED), replay.complete(ASKED, seed=4)] == heard
    assert replay.budget.requests == 0
    with pytest.raises(NotRecorded, match=r"talk\.jsonl has no answer"):
        replay.complete(ASKED)
    with pytest.raises(NotRecorded):
        replay.complete([Message("user", "Another?")])


def test_a_recording_goes_on_after_a_kill(client: Any, tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    with serve([say("1"), say("2")]) as server:
        client(server, recorder=Recorder(path)).complete(ASKED)
        with path.open("a") as file:
            file.write('{"schema": "hgemm_packs.casse')
        client(server, recorder=Recorder(path)).complete(ASKED, seed=1)
    replay = Chat(None, "scripted", player=Player(path))
    assert replay.complete(ASKED, seed=1) == [Reply("2")]


@pytest.mark.parametrize(
    "line", ["{", "[]", '{"schema": "x"}', '{"schema": "hgemm_packs.cassette.v1", "key": "k"}']
)
def test_a_file_that_is_no_cassette_is_refused(tmp_path: Path, line: str) -> None:
    path = tmp_path / "talk.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(ValueError, match=r"talk\.jsonl, line 1, is no cassette"):
        Player(path)
