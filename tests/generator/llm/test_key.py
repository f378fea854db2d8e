"""No key reaches a log, a store, a cassette, an exception's text or an export."""

from __future__ import annotations

import logging
import pickle
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hgemm_packs.generator.llm.budget import Budget
from hgemm_packs.generator.llm.files import Cache, Recorder
from hgemm_packs.generator.llm.key import HIDDEN, Key, find_key
from hgemm_packs.generator.llm.words import ChatError, Message

from .conftest import KEY
from .scripted_server import Step, closed, say, serve, slow, status

ASKED = [Message("user", f"My key is {KEY}.")]
STEPS = {
    "an answer with the key": say(f"You sent {KEY}."),
    "401 with the key": status(401, f"Incorrect API key provided: {KEY}"),
    "500 with the key": status(500, f"crashed on {KEY}"),
    "a body with the key": Step(raw=f"Authorization: Bearer {KEY}".encode()),
    "a field with the key": Step(raw=b'{"choices": "' + KEY.encode() + b'"}'),
    "closed": closed(),
    "slow": slow(0.5),
}


def words_of(error: BaseException) -> Iterator[str]:
    """All that a log or a debugger writes of an error and of those behind it."""
    yield "".join(traceback.format_exception(error))
    seen: BaseException | None = error
    while seen is not None:
        yield repr(seen)
        yield repr(vars(seen))
        seen = seen.__cause__ or seen.__context__


@pytest.mark.parametrize("what", STEPS)
def test_a_key_is_nowhere_but_in_the_header(
    client: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    caplog.set_level(logging.DEBUG)
    said: list[str] = []
    with serve([STEPS[what]]) as server:
        chat = client(
            server,
            timeout_s=0.2,
            cache=Cache(tmp_path / "cache"),
            recorder=Recorder(tmp_path / "talk.jsonl"),
            budget=Budget(ledger=tmp_path / "spent.jsonl"),
        )
        try:
            said += [reply.text for reply in chat.complete(ASKED)]
        except ChatError as error:
            said += words_of(error)
        said += [repr(chat), str(chat.key), repr(chat.transport)]
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"
    files = [path.read_text() for path in tmp_path.rglob("*") if path.is_file()]
    assert files, "nothing was written that could be looked at"
    assert not [text for text in (*said, *files, caplog.text) if KEY in text]
    assert KEY not in str(server.bodies)  # a prompt is no place for it either
    assert server.bodies[0]["messages"][0]["content"] == f"My key is {HIDDEN}."


def test_a_key_is_not_shown_and_not_pickled() -> None:
    key = Key(KEY)
    assert (str(key), repr(key), f"{key}") == (HIDDEN,) * 3
    with pytest.raises(TypeError, match="not written"):
        pickle.dumps(key)


def test_a_key_comes_from_a_file_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "from-the-environment")
    assert find_key().reveal() == "from-the-environment"
    (tmp_path / "key").write_text(KEY + "\n")
    assert find_key(tmp_path / "key").reveal() == KEY
    monkeypatch.delenv("OPENAI_API_KEY")
    assert find_key().reveal() == "none"
    (tmp_path / "key").write_text(f"{KEY}\n{KEY}")
    with pytest.raises(ValueError, match="is not one key") as error:
        find_key(tmp_path / "key")
    assert KEY not in str(error.value)


def test_a_word_that_serves_as_key_is_not_cut_out_of_texts() -> None:
    assert Key("none").hide("none of it") == "none of it"
