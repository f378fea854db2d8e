"""The client against a real server on this machine, which does what servers do."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from hgemm_packs.generator.llm.chat import Chat
from hgemm_packs.generator.llm.key import Key
from hgemm_packs.generator.llm.server import Server
from hgemm_packs.generator.llm.words import ChatError, Message, Reply

from .scripted_server import (
    MALFORMED,
    Body,
    Step,
    closed,
    cut_off,
    refuse,
    say,
    serve,
    slow,
    status,
)

ASKED = [Message("system", "Be short."), Message("user", "A tile size?")]
GOOD = say("128")
ANSWER = [Reply("128")]


def test_a_good_answer_comes_back_and_the_request_is_as_the_protocol_has_it(client: Any) -> None:
    with serve([GOOD]) as server:
        schema = {"type": "object"}
        assert client(server).complete(ASKED, temperature=0.5, schema=schema, seed=7) == ANSWER
    assert server.bodies == [
        {
            "model": "scripted",
            "messages": [
                {"role": "system", "content": "Be short."},
                {"role": "user", "content": "A tile size?"},
            ],
            "n": 1,
            "temperature": 0.5,
            "seed": 7,
            "max_tokens": 2048,
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "answer", "schema": {"type": "object"}, "strict": True},
            },
        }
    ]


@pytest.mark.parametrize("code", [408, 409, 429, 500, 502, 503])
def test_what_passes_is_tried_again(client: Any, waits: list[float], code: int) -> None:
    with serve([status(code), status(code), GOOD]) as server:
        assert client(server).complete(ASKED) == ANSWER
    assert len(server.bodies) == 3
    assert 0.9 <= waits[0] <= 1.1 and 1.8 <= waits[1] <= 2.2


def test_a_server_that_says_how_long_is_believed_within_reason(
    client: Any, waits: list[float]
) -> None:
    script = [status(429, Retry_After="7"), status(429, Retry_After="9999999"), GOOD]
    with serve(script) as server:
        assert client(server).complete(ASKED) == ANSWER
    assert waits == [7.0, 60.0]


@pytest.mark.parametrize("code", [400, 401, 403, 404, 422])
def test_what_does_not_pass_is_not_tried_again(client: Any, code: int) -> None:
    refused = pytest.raises(ChatError, match=f"the server answered {code}: .*not so")
    with serve([status(code, "not so")]) as server, refused:
        client(server).complete(ASKED)
    assert len(server.bodies) == 1


@pytest.mark.parametrize("what", MALFORMED)
def test_a_body_that_is_no_answer_is_tried_again_and_then_an_error(client: Any, what: str) -> None:
    with serve([MALFORMED[what], GOOD]) as server:
        assert client(server).complete(ASKED) == ANSWER
    refused = pytest.raises(ChatError, match="no chat completion")
    with serve([MALFORMED[what]]) as server, refused:
        client(server).complete(ASKED)
    assert len(server.bodies) == 3


@pytest.mark.parametrize("when", ["before", "within"])
def test_a_closed_connection_is_tried_again(client: Any, when: str) -> None:
    with serve([closed(when), GOOD]) as server:
        assert client(server).complete(ASKED) == ANSWER
    with serve([closed(when)]) as server, pytest.raises(ChatError, match="no connection"):
        client(server).complete(ASKED)


def test_a_slow_server_is_not_waited_for(client: Any) -> None:
    with serve([slow(3.0), GOOD]) as server:
        assert client(server, timeout_s=1.0).complete(ASKED) == ANSWER
    with serve([slow(1.0)]) as server, pytest.raises(ChatError, match="did not answer in time"):
        client(server, timeout_s=0.1, tries=2).complete(ASKED)


def test_no_server_is_an_error_in_words(client: Any) -> None:
    with serve([GOOD]) as server:
        pass
    with pytest.raises(ChatError, match="no connection"):
        client(server).complete(ASKED)


def test_a_reply_that_is_cut_off_gets_more_room_until_there_is_no_more(client: Any) -> None:
    with serve([cut_off("12"), GOOD]) as server:
        assert client(server).complete(ASKED) == ANSWER
    assert [body["max_tokens"] for body in server.bodies] == [2048, 4096]
    with serve([cut_off("12")]) as server:
        got = client(server, max_tokens=1000, most_tokens=3000).complete(ASKED)
    assert got == [Reply("12", "length")]
    assert [body["max_tokens"] for body in server.bodies] == [1000, 2000, 3000]


def test_a_reply_that_is_cut_off_stays_where_the_server_has_no_more_room(client: Any) -> None:
    """A context smaller than the room asked for is a 400, and what the model had said was lost."""
    with serve([cut_off("12"), status(400, "max_tokens is too large")]) as server:
        assert client(server).complete(ASKED) == [Reply("12", "length")]
    assert [body["max_tokens"] for body in server.bodies] == [2048, 4096]


def test_a_refusal_is_an_answer(client: Any) -> None:
    with serve([refuse("No.")]) as server:
        assert client(server).complete(ASKED) == [Reply("", "stop", "No.")]


def test_a_server_that_gives_one_sample_at_a_time_is_asked_until_there_are_n(client: Any) -> None:
    with serve([say("1"), say("2", "3"), say("4")]) as server:
        got = client(server).complete(ASKED, n=4, seed=10)
    assert [reply.text for reply in got] == ["1", "2", "3", "4"]
    assert [(body["n"], body["seed"]) for body in server.bodies] == [(4, 10), (3, 11), (1, 13)]


def test_samples_beyond_those_asked_for_are_left(client: Any) -> None:
    with serve([say("1", "2", "3")]) as server:
        assert [reply.text for reply in client(server).complete(ASKED, n=2)] == ["1", "2"]


def test_a_climb_asks_at_even_steps_of_temperature(client: Any) -> None:
    with serve([GOOD]) as server:
        got = client(server).climb(ASKED, n=5, temperatures=(0.2, 1.0))
    assert got == ANSWER * 5
    assert [body["temperature"] for body in server.bodies] == [0.2, 0.4, 0.6, 0.8, 1.0]
    assert [body["seed"] for body in server.bodies] == [0, 1, 2, 3, 4]


def test_a_model_that_knows_max_tokens_by_another_name_is_asked_by_it(client: Any) -> None:
    wants = status(400, "Unsupported parameter: use max_completion_tokens instead")
    with serve([wants, GOOD]) as server:
        chat = client(server)
        assert chat.complete(ASKED) == ANSWER
        assert chat.complete(ASKED) == ANSWER
    assert ["max_tokens" in body for body in server.bodies] == [True, False, False]
    assert server.bodies[2]["max_completion_tokens"] == 2048


@pytest.mark.parametrize("code", [400, 422, 500])
def test_a_server_that_knew_schemas_before_the_protocol_did_is_asked_as_it_knows(
    client: Any, code: int
) -> None:
    """llama-cpp-python refused every request with a schema, with 500, and was asked five times."""
    schema = {"type": "object"}
    words = "literal_error ('body', 'response_format', 'type'): Input should be 'json_object'"
    with serve([status(code, words), GOOD]) as server:
        chat = client(server)
        assert chat.complete(ASKED, schema=schema) == ANSWER
        assert chat.complete(ASKED, schema=schema) == ANSWER
        assert chat.complete(ASKED) == ANSWER
    kinds = [body.get("response_format", {}).get("type") for body in server.bodies]
    assert kinds == ["json_schema", "json_object", "json_object", None]
    assert server.bodies[1]["response_format"]["schema"] == schema
    with serve([status(400, words)]) as server, pytest.raises(ChatError, match="answered 400"):
        client(server).complete(ASKED, schema=schema)
    assert len(server.bodies) == 2


def test_threads_that_are_refused_together_all_ask_in_the_other_form(client: Any) -> None:
    """The second of two threads that were refused took the first's lesson for its own, and gave
    up."""

    def script(body: Body) -> Step:
        wants = {
            "max_completion_tokens": "max_tokens" in body,
            "response_format": "json_schema" in body["response_format"],
        }
        lacks = [name for name, wanted in wants.items() if wanted]
        # Both are asked before either is refused.
        return replace(status(400, lacks[0]), wait_s=0.3) if lacks else GOOD

    with serve(script) as server, ThreadPoolExecutor(2) as pool:
        chat = client(server)
        schema = {"type": "object"}
        asked = [pool.submit(chat.complete, ASKED, schema=schema, seed=seed) for seed in (0, 1)]
        assert [each.result() for each in asked] == [ANSWER, ANSWER]
    assert len(server.bodies) == 6


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://x/v1", "", "http:///v1"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="begins with http"):
        Server(url, Key())


def test_a_password_in_the_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(ValueError, match="holds no password") as error:
        Server("http://me:secret123@localhost/v1", Key())
    assert "secret123" not in str(error.value)


def test_an_answer_may_take_minutes() -> None:
    """A model on a busy CPU took 165 s. The client gave up after 120, asked the same again, and
    waited behind the answer that nobody read."""
    pytest.importorskip("openai")
    assert Server("http://localhost/v1", Key())._client.timeout == 600.0


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'hgemm-packs\[llm\]'"):
        Server("http://localhost/v1", Key())


def test_without_a_server_nothing_is_asked() -> None:
    with pytest.raises(ChatError, match="no server"):
        Chat(None, "none").complete(ASKED)
