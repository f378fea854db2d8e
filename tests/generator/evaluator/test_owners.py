"""Who may ask a served evaluator, and how much: tokens, rates, connections, addresses."""

from __future__ import annotations

import socket
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hgemm_packs.generator.evaluator.served.http_door import Server, is_loopback
from hgemm_packs.generator.evaluator.served.owners import Owners, Rates
from hgemm_packs.generator.evaluator.served.requests import Limits, Refusal
from hgemm_packs.generator.evaluator.served.service import Service
from tests.generator.evaluator import proposals
from tests.generator.evaluator.proposals import of_choice
from tests.generator.evaluator.serving import SIM, Client, job, serving, talk

TOKENS = {"ann": "the_token_of_ann,_not_short"}


def candidate(at: int = 0) -> Any:
    return of_choice(proposals.choices()[at])


def test_rates_of_a_token() -> None:
    now = 0.0
    rates = Rates(60, lambda: now)
    rates.take("ann", 60)
    with pytest.raises(Refusal, match="1 candidates now are more than 60 a minute") as refused:
        rates.take("ann", 1)
    assert (refused.value.status, refused.value.retry_after_s) == (429, 1.0)
    rates.take("bob", 60)
    now = 10.0  # ten have been earned
    with pytest.raises(Refusal) as refused:
        rates.take("ann", 25)
    assert refused.value.retry_after_s == 15.0
    rates.take("ann", 10)
    now = 1e6  # never more than a minute's
    rates.take("ann", 60)
    with pytest.raises(Refusal):
        rates.take("ann", 1)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Service]]:
    """A door that grants little, without tokens."""
    limits = Limits(per_minute=3, connections=2, wait_s=5.0)
    with serving(tmp_path_factory.mktemp("small"), [SIM], limits) as made:
        yield made


def test_who_asks_too_often_is_told_when_to_come_back(small: tuple[Server, Service]) -> None:
    client = Client(small[0].server_address[:2])  # type: ignore[arg-type]
    said = [client.submit(candidate(at), wait=5) for at in range(3)]
    assert [each.status for each in said] == [200] * 3
    said = [
        client.submit(candidate(3)),
        client.ask("POST", "/v1/batch", {"jobs": [job(candidate())]}),
    ]
    assert [(each.status, each.code) for each in said] == [(429, "too_many")] * 2
    assert all(1 <= int(each.headers["Retry-After"]) <= 20 for each in said)
    assert len(client.ask("GET", "/v1/jobs").body["jobs"]) == 3


def test_too_many_connections_are_told_so(small: tuple[Server, Service]) -> None:
    address: Any = small[0].server_address[:2]
    lines = [socket.create_connection(address, 30) for _ in range(2)]
    for line in lines:  # a kept connection keeps its place
        line.sendall(b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert line.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
    status, body = talk(small[0], b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n", end=False)
    assert (status, body["error"]["code"]) == (503, "busy")
    for line in lines:
        line.close()


def test_without_tokens_no_foreign_name_is_served(small: tuple[Server, Service]) -> None:
    """A page of the web may resolve its own name to this machine, and have a browser ask."""
    client = Client(small[0].server_address[:2])  # type: ignore[arg-type]

    def ask(host: str) -> int:
        for _ in range(50):  # the test before has let go of its connections, but when?
            said = client.ask("GET", "/v1/queue", headers={"Host": host})
            if said.status != 503:
                return said.status
            threading.Event().wait(0.1)
        return 503

    hosts = ("evil.example", "evil.example:80", "127.0.0.1.evil.example", "10.0.0.1")
    assert [ask(host) for host in hosts] == [403] * 4
    assert [ask(host) for host in ("localhost", "127.0.0.1:9", "[::1]:80")] == [200] * 3


def test_without_tokens_only_this_machine_is_served(small: tuple[Server, Service]) -> None:
    for host in ("0.0.0.0", "::", "192.0.2.1", "example.org", ""):
        with pytest.raises(
            ValueError, match="can be reached from elsewhere: name a file of tokens"
        ):
            Server(host, 0, small[1], Owners())
    assert [is_loopback(host) for host in ("127.0.0.1", "127.9.9.9", "::1", "localhost")] == [
        True
    ] * 4
    with Server("0.0.0.0", 0, small[1], Owners(TOKENS)) as server:
        assert server.url.startswith("http://0.0.0.0:")


def test_tokens_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    secret = "0123456789abcdef"

    def written(text: str, mode: int = 0o600) -> Path:
        path.write_text(text, encoding="utf-8")
        path.chmod(mode)
        return path

    owners = Owners.of_file(written(f"# ours\n\nann {secret}\nbob  {secret}-too\n"))
    assert owners.owner(f"Bearer {secret}") == "ann"
    assert owners.owner(f"bearer  {secret}-too") == "bob"
    for text, words in (
        ("", "has no tokens"),
        ("# nobody\n", "has no tokens"),
        (secret, ":1: a line is NAME TOKEN"),
        (f"ann {secret}\nann {secret}-too", ":2: ann or its token is there twice"),
        (f"ann {secret}\nbob {secret}", ":2: bob or its token is there twice"),
        ("ann short", "the token of ann has fewer than 16 characters"),
        (f"an/n {secret}", ":1: a line is NAME TOKEN"),
    ):
        with pytest.raises(ValueError, match=words) as refused:
            Owners.of_file(written(text))
        assert secret not in str(refused.value)
    with pytest.raises(ValueError, match="others may read it: chmod 600"):
        Owners.of_file(written(f"ann {secret}", 0o644))
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
