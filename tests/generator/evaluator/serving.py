"""A served evaluator in this process, and a client that knows nothing of it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from hgemm_packs.generator.evaluator.candidate import Candidate
from hgemm_packs.generator.evaluator.served.http_door import Server
from hgemm_packs.generator.evaluator.served.owners import Owners
from hgemm_packs.generator.evaluator.served.requests import Asked, Limits, problem_document
from hgemm_packs.generator.evaluator.served.service import Service
from hgemm_packs.problem import Problem
from tests.generator.evaluator import proposals
from tests.generator.evaluator.proposals import PROBLEM, of_choice

JSON = {"Content-Type": "application/json"}
SIM = "sim:3"


class Said(NamedTuple):
    """What a server answered."""

    status: int
    headers: Mapping[str, str]
    body: Any

    @property
    def code(self) -> str:
        return str(self.body["error"]["code"])


class Client:
    """Asks one server, a connection a request."""

    def __init__(self, address: tuple[str, int], token: str = "") -> None:
        self._address = address
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    def ask(
        self,
        method: str,
        path: str,
        document: Any = None,
        *,
        body: bytes | str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Said:
        if document is not None:
            body = json.dumps(document)
        connection = http.client.HTTPConnection(*self._address, timeout=120)
        try:
            sent = {**self._headers, **(JSON if body is not None else {}), **(headers or {})}
            connection.request(method, path, body, sent)
            answer = connection.getresponse()
            data = answer.read()
            return Said(answer.status, dict(answer.headers), json.loads(data) if data else None)
        finally:
            connection.close()

    def submit(self, candidate: Candidate, problem: Problem = PROBLEM, wait: float = 0) -> Said:
        return self.ask("POST", f"/v1/jobs?wait={wait}", job(candidate, problem))

    def lines(self, path: str) -> list[Any]:
        """A stream of JSON lines, to its end."""
        connection = http.client.HTTPConnection(*self._address, timeout=120)
        try:
            connection.request("GET", path, headers=self._headers)
            return [json.loads(line) for line in connection.getresponse()]
        finally:
            connection.close()


def job(candidate: Candidate, problem: Problem = PROBLEM) -> dict[str, Any]:
    return {"problem": problem_document(problem), "candidate": candidate.document()}


def asked(count: int = 1) -> list[Asked]:
    """So many different candidates for PROBLEM."""
    return [Asked(of_choice(choice), PROBLEM) for choice in proposals.choices(count)]


@contextmanager
def serving(
    folder: Path,
    devices: Sequence[str] = (SIM,),
    limits: Limits | None = None,
    tokens: Mapping[str, str] | None = None,
) -> Iterator[tuple[Server, Service]]:
    """A server on a port of its own."""
    with (
        Service(folder, devices, limits) as service,
        Server("127.0.0.1", 0, service, Owners(tokens)) as server,
    ):
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield server, service
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def held(service: Service, seat: int = 0) -> Iterator[int]:
    """A device's process that does nothing meanwhile, whatever it is asked."""
    pid = service.pids()[seat]
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        yield pid
    finally:
        if service.pids()[seat] == pid:
            os.kill(pid, signal.SIGCONT)


def talk(server: Server, words: bytes, *, end: bool = True) -> tuple[int, dict[str, Any]]:
    """The status and body of what a server answers to bytes."""
    with socket.create_connection(server.server_address[:2], 30) as line:  # type: ignore[arg-type]
        line.sendall(words)
        if end:
            line.shutdown(socket.SHUT_WR)
        data = b""
        while part := line.recv(1 << 16):
            data += part
    head, _, body = data.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)
