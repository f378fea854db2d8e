"""The HTTP door: fifty clients at once, bodies of every wrong kind, tokens, limits, and the corpus
of cheats."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from hgemm_packs.generator.devices.sim import SimDevice
from hgemm_packs.generator.evaluator.evaluator import Evaluator
from hgemm_packs.generator.evaluator.served.http_door import Server
from hgemm_packs.generator.evaluator.served.requests import Limits
from hgemm_packs.generator.evaluator.served.service import Service
from tests.generator.evaluator import proposals
from tests.generator.evaluator.proposals import PROBLEM, of_choice
from tests.generator.evaluator.serving import SIM, Client, Said, held, job, serving, talk

TOKENS = {"ann": "the_token_of_ann,_not_short", "bob": "bob's_token,_long_enough"}
SIZES = {"m": 64, "n": 512, "k": 512}


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Service]]:
    limits = Limits(waiting=100, batch=8, connections=80, body_bytes=1 << 16, source_chars=1 << 12)
    with serving(tmp_path_factory.mktemp("http"), [SIM], limits, TOKENS) as made:
        yield made


@pytest.fixture
def ann(door: tuple[Server, Service]) -> Client:
    return Client(door[0].server_address[:2], TOKENS["ann"])  # type: ignore[arg-type]


@pytest.fixture
def bob(door: tuple[Server, Service]) -> Client:
    return Client(door[0].server_address[:2], TOKENS["bob"])  # type: ignore[arg-type]


def candidate(at: int = 0) -> Any:
    return of_choice(proposals.choices()[at])


def test_fifty_clients_at_once_each_get_their_own_answer(ann: Client) -> None:
    given = [of_choice(choice) for choice in proposals.choices(50)]
    with ThreadPoolExecutor(50) as pool:
        said = list(pool.map(lambda each: ann.submit(each, wait=60), given))
    assert [each.status for each in said] == [200] * 50
    evaluator = Evaluator(SimDevice(3))
    expected = [evaluator.evaluate(each, PROBLEM).document() for each in given]
    assert [each.body["answer"] for each in said] == expected
    assert len({each.body["id"] for each in said}) == 50


def test_a_session_of_an_agent(ann: Client) -> None:
    families = ann.ask("GET", "/v1/families").body
    assert families["sm90_gemv"]["genome"]["type"] == "object"
    facts = ann.ask("POST", "/v1/problem", SIZES).body
    assert facts["flops"] == 2 * 64 * 512 * 512
    assert facts["regime"] == "tiny"
    assert {choice.family for choice in proposals.choices(3000)} <= set(facts["families"])
    said = ann.submit(candidate())
    assert said.status in (200, 202) and said.headers["Location"] == f"/v1/jobs/{said.body['id']}"
    place = said.headers["Location"]
    lines = ann.lines(f"{place}/events")
    assert lines[-1]["state"] == "done"
    assert ann.ask("GET", place).body == lines[-1]
    assert ann.ask("GET", "/v1/jobs").body["jobs"][0] == {"id": said.body["id"], "state": "done"}
    assert ann.ask("DELETE", place).code == "finished"
    assert ann.ask("GET", "/v1/queue").body == {
        "queued": 0,
        "running": 0,
        "devices": [{"device": SIM, "state": "idle"}],
    }


def test_a_batch_is_queued_whole_or_not(ann: Client) -> None:
    jobs = [job(candidate(at)) for at in range(4)]
    said = ann.ask("POST", "/v1/batch", {"jobs": jobs})
    assert said.status == 202
    ids = [each["id"] for each in said.body["jobs"]]
    seen = [ann.ask("GET", f"/v1/jobs/{each}?wait=60").body for each in ids]
    evaluator = Evaluator(SimDevice(3))
    expected = [evaluator.evaluate(candidate(at), PROBLEM).document() for at in range(4)]
    assert [each["answer"] for each in seen] == expected
    before = ann.ask("GET", "/v1/jobs").body
    wrong = ann.ask("POST", "/v1/batch", {"jobs": [*jobs, {"problem": SIZES}]})
    assert (wrong.status, wrong.code) == (400, "bad_request")
    assert wrong.body["error"]["message"].startswith("jobs[4]: a job is")
    large = ann.ask("POST", "/v1/batch", {"jobs": jobs * 3})
    assert (large.status, large.code) == (422, "batch_too_large")
    assert ann.ask("GET", "/v1/jobs").body == before


@pytest.mark.parametrize(
    "document", [None, [], {}, {"jobs": []}, {"jobs": 1}, {"jobs": [1], "x": 2}]
)
def test_what_is_no_batch_is_refused(ann: Client, document: Any) -> None:
    said = ann.ask("POST", "/v1/batch", body=json.dumps(document))
    assert (said.status, said.code) == (400, "bad_request")


@pytest.mark.parametrize(
    ("sizes", "status", "code"),
    [
        ({"m": 0}, 400, "bad_problem"),
        ({"m": -1}, 400, "bad_problem"),
        ({"m": 1.5}, 400, "bad_problem"),
        ({"m": "64"}, 400, "bad_problem"),
        ({"m": True}, 400, "bad_problem"),
        ({"m": None}, 400, "bad_problem"),
        ({"m": 2**31}, 400, "bad_problem"),
        ({"m": 10**4000}, 400, "bad_problem"),
        ({"m": 2**17}, 422, "problem_too_large"),
        ({"m": 2**31 - 1, "n": 2**31 - 1, "k": 2**31 - 1}, 422, "problem_too_large"),
        ({"m": 2**16, "n": 2**16, "k": 2**16}, 422, "problem_too_large"),
        ({"layout": "nx"}, 400, "bad_problem"),
        ({"layout": ["nt"]}, 400, "bad_problem"),
        ({"dtype": "f64"}, 400, "bad_problem"),
        ({"epilogue": "softmax"}, 400, "bad_problem"),
        ({"base": [16, 16]}, 400, "bad_problem"),
        ({"base": [16, 16, 3]}, 400, "bad_problem"),
        ({"packed": 1}, 400, "bad_problem"),
        ({"batches": 1000}, 400, "bad_problem"),
    ],
)
def test_hostile_problems_are_refused(ann: Client, sizes: Any, status: int, code: str) -> None:
    asked_for = {"problem": {**SIZES, **sizes}, "candidate": candidate().document()}
    said = ann.ask("POST", "/v1/jobs", asked_for)
    assert (said.status, said.code) == (status, code)
    facts = ann.ask("POST", "/v1/problem", {**SIZES, **sizes})
    assert (facts.status, facts.code) == (status, code)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "bad_json"),
        (b"{", "bad_json"),
        (b"\xff\xfe{}", "bad_json"),
        (b"[" * 50_000, "bad_json"),
        (b'{"problem": {}, "problem": {}}', "bad_json"),
        (b'{"problem": NaN}', "bad_json"),
        (b'{"a": ' + b"9" * 5000 + b"}", "bad_json"),
        (b"null", "bad_request"),
        (b"[]", "bad_request"),
        (b'"x"', "bad_request"),
        (b"{}", "bad_request"),
        (b'{"problem": {}, "candidate": {}, "more": 1}', "bad_request"),
        (b'{"problem": {}, "candidate": []}', "bad_candidate"),
        (b'{"problem": {}, "candidate": {}}', "bad_candidate"),
        (b'{"problem": {}, "candidate": {"family": "x", "genome": 1}}', "bad_candidate"),
        (b'{"problem": {}, "candidate": {"family": "x", "genome": {}}}', "bad_problem"),
        (b'{"problem": [], "candidate": {"family": "x", "genome": {}}}', "bad_problem"),
    ],
)
def test_malformed_bodies_are_refused(ann: Client, body: bytes, code: str) -> None:
    said = ann.ask("POST", "/v1/jobs", body=body)
    assert (said.status, said.code) == (400, code)
    assert ann.ask("GET", "/v1/health").body == {"status": "ok"}


def test_sources_and_bodies_beyond_the_limits_are_refused(ann: Client) -> None:
    source = {"source": "x" * 5000, "record": {"block": 32}}
    said = ann.ask("POST", "/v1/jobs", {"problem": SIZES, "candidate": source})
    assert (said.status, said.code) == (422, "source_too_large")
    said = ann.ask("POST", "/v1/jobs", body=b" " * (1 << 16) + b"{}")
    assert (said.status, said.code) == (413, "body_too_large")
    assert said.headers["Connection"] == "close"


AUTHORIZED = f"Authorization: Bearer {TOKENS['ann']}\r\nConnection: close\r\n".encode()
POST = b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\n" + AUTHORIZED


@pytest.mark.parametrize(
    ("words", "status", "code"),
    [
        (b"nonsense\r\n\r\n", 400, "bad_http"),
        (b"GET / HTTP/9.9\r\n\r\n", 505, "bad_http"),
        (b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n", 414, "bad_http"),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n", 431, "bad_http"),
        (b"FLY /v1/jobs HTTP/1.1\r\n" + AUTHORIZED + b"\r\n", 405, "bad_method"),
        (POST + b"\r\n", 411, "no_length"),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 411, "no_length"),
        (POST + b"Content-Length: -5\r\n\r\n", 400, "bad_length"),
        (POST + b"Content-Length: 1e3\r\n\r\n", 400, "bad_length"),
        (POST + b"Content-Length: " + b"9" * 40 + b"\r\n\r\n", 400, "bad_length"),
        (POST + b"Content-Length: 999999999\r\n\r\n", 413, "body_too_large"),
        (POST + b"Content-Length: 2\r\nContent-Type: text/plain\r\n\r\n{}", 415, "not_json"),
        (POST + b"Content-Length: 2\r\n\r\n{}", 415, "not_json"),
        (
            POST + b"Content-Length: 90\r\nContent-Type: application/json\r\n\r\n{}",
            400,
            "short_body",
        ),
        (b"GET /v1/../jobs HTTP/1.1\r\n" + AUTHORIZED + b"\r\n", 404, "no_page"),
        (b"GET /v1/jobs/x?wait=1e9 HTTP/1.1\r\n" + AUTHORIZED + b"\r\n", 400, "bad_query"),
        (b"GET /v1/jobs/x?wait=-1 HTTP/1.1\r\n" + AUTHORIZED + b"\r\n", 400, "bad_query"),
        (b"GET /v1/jobs/x HTTP/1.1\r\n" + AUTHORIZED + b"\r\n", 404, "no_job"),
    ],
)
def test_bytes_that_are_no_request_of_ours(
    door: tuple[Server, Service], words: bytes, status: int, code: str
) -> None:
    found, body = talk(door[0], words)
    assert (found, body["error"]["code"]) == (status, code)


def test_a_refused_body_is_not_the_next_request(door: tuple[Server, Service]) -> None:
    """A body that nobody read was taken for a request: it could ask in another's name."""
    inner = b"GET /v1/queue HTTP/1.1\r\n" + AUTHORIZED + b"\r\n"
    length = f"Content-Length: {len(inner)}\r\nContent-Type: text/plain\r\n\r\n".encode()
    words = POST.replace(b"Connection: close\r\n", b"") + length + inner
    status, body = talk(door[0], words)  # one answer: a second would be no JSON
    assert (status, body["error"]["code"]) == (415, "not_json")


@pytest.mark.parametrize(
    "header",
    [
        *("", "Bearer", "Bearer x", f"Basic {TOKENS['ann']}", TOKENS["ann"]),
        *(f"Bearer {TOKENS['ann']}x", f"Bearer {TOKENS['ann'][:-1]}", "Bearer \xff\xfe"),
    ],
)
def test_wrong_tokens_get_nothing(door: tuple[Server, Service], header: str) -> None:
    client = Client(door[0].server_address[:2])  # type: ignore[arg-type]
    before = door[1].last("ann")
    for method, path, document in (
        ("GET", "/v1/queue", None),
        ("GET", "/v1/families", None),
        ("GET", "/v1/jobs", None),
        ("POST", "/v1/jobs", job(candidate())),
    ):
        said = client.ask(method, path, document, headers={"Authorization": header})
        assert (said.status, said.code) == (401, "unauthorized")
        assert said.headers["WWW-Authenticate"] == "Bearer"
        assert TOKENS["ann"] not in json.dumps(said.body)
    assert client.ask("GET", "/v1/health").body == {"status": "ok"}
    assert door[1].last("ann") == before


def test_one_owner_sees_nothing_of_another(ann: Client, bob: Client) -> None:
    place = f"/v1/jobs/{ann.submit(candidate(), wait=60).body['id']}"
    for method, path in (("GET", place), ("DELETE", place), ("GET", f"{place}/events")):
        said = bob.ask(method, path)
        assert (said.status, said.code) == (404, "no_job")
    assert bob.ask("GET", "/v1/jobs").body == {"jobs": []}


def test_a_job_is_cancelled_through_the_door(door: tuple[Server, Service], ann: Client) -> None:
    with held(door[1]):
        running = ann.submit(candidate(0), wait=0.5)
        waiting = ann.submit(candidate(1))
        assert (running.status, waiting.status) == (202, 202)
        for each in (waiting, running):
            said = ann.ask("DELETE", f"/v1/jobs/{each.body['id']}")
            assert (said.status, said.body["state"]) == (200, "cancelled")
    assert ann.submit(candidate(2), wait=60).body["state"] == "done"


def test_a_killed_process_costs_one_client_its_job(
    door: tuple[Server, Service], ann: Client
) -> None:
    with ThreadPoolExecutor(8) as pool:
        with held(door[1]) as pid:
            first = ann.submit(candidate(0), wait=0.5)
            assert first.body["state"] == "running"
            others = [pool.submit(ann.submit, candidate(at), PROBLEM, 60) for at in (1, 2, 3)]
            os.kill(pid, signal.SIGKILL)
            lost = ann.ask("GET", f"/v1/jobs/{first.body['id']}?wait=60").body
            assert (lost["state"], lost["error"]["code"]) == ("failed", "process_died")
        said: list[Said] = [each.result() for each in others]
    assert [each.body["state"] for each in said] == ["done"] * 3


def test_a_client_that_leaves_disturbs_nobody(door: tuple[Server, Service], ann: Client) -> None:
    address: Any = door[0].server_address[:2]
    body = json.dumps(job(candidate())).encode()
    head = f"Content-Length: {len(body)}\r\nContent-Type: application/json\r\n\r\n".encode()
    wait = POST.replace(b"/v1/jobs ", b"/v1/jobs?wait=60 ")
    for words in (b"", b"POST /v1", POST + head, POST + head + body[:20], wait + head + body):
        with socket.create_connection(address, 30) as line:
            line.sendall(words)
    assert ann.submit(candidate(1), wait=60).body["state"] == "done"
