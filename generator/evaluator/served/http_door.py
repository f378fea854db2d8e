"""The evaluator over HTTP: JSON in and out, a token for each owner, a limit on everything.

Started by `generate serve`. It reads requests and hands them to the service; what a candidate does,
the service's processes bear. It speaks plain HTTP: TLS is a proxy's in front of it.
"""

from __future__ import annotations

import contextlib
import functools
import ipaddress
import json
import logging
import socket
import threading
from collections.abc import Callable, Mapping
from http.server import ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from hgemm_packs.generator.evaluator import schema
from hgemm_packs.generator.evaluator.served import requests
from hgemm_packs.generator.evaluator.served.http_wire import MethodRefusal, Wire
from hgemm_packs.generator.evaluator.served.owners import Owners, Rates
from hgemm_packs.generator.evaluator.served.requests import Limits, Refusal
from hgemm_packs.generator.evaluator.served.service import Service

log = logging.getLogger("hgemm_packs.evaluator")


def is_loopback(host: str) -> bool:
    """Whether an address or "localhost" is this machine's own."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


class Server(ThreadingHTTPServer):
    """Answers requests until `shutdown`, each connection on a thread of its own.

    Raises ValueError for an address that others can reach while nobody needs a token, OSError where
    it cannot listen. `url` says where it listens.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 256

    def __init__(self, host: str, port: int, service: Service, owners: Owners) -> None:
        if owners.open and not is_loopback(host):
            raise ValueError(f"{host} can be reached from elsewhere: name a file of tokens")
        self.service, self.owners = service, owners
        self.rates = Rates(service.limits.per_minute)
        self.slots = threading.BoundedSemaphore(service.limits.connections)
        if ":" in host:
            self.address_family = socket.AF_INET6
        super().__init__((host, port), Handler)

    @property
    def url(self) -> str:
        host, port = self.server_address[:2]
        shown = f"[{host!s}]" if ":" in str(host) else str(host)
        return f"http://{shown}:{port}"

    def server_bind(self) -> None:
        """Bind, without the look-up of this host's name, which may take seconds."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        """A thread for a connection, or 503 where all are taken."""
        if self.slots.acquire(blocking=False):
            super().process_request(request, client_address)
            return
        body = json.dumps(Refusal(503, "busy", "too many connections").document()).encode()
        head = "HTTP/1.1 503 Busy\r\nContent-Type: application/json\r\nRetry-After: 1\r\n"
        with contextlib.suppress(OSError):
            request.settimeout(1.0)
            request.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that left in the middle is no error of ours."""
        log.debug("a connection ended early", exc_info=True)


class Handler(Wire):
    """The pages of ROUTES, for whom they are."""

    server: Server
    owner = ""

    @property
    def limits(self) -> Limits:  # type: ignore[override]
        return self.service.limits

    def route(self) -> None:
        parts = urlsplit(self.path)
        words = [word for word in parts.path.split("/") if word]
        self._check_host()
        named = _route_of(words)
        if named is None:
            raise Refusal(404, "no_page", f"there is no {parts.path[:200]!r}")
        methods, rest = named
        work = methods.get(self.command)
        if work is None:
            allowed = ", ".join(methods)
            raise MethodRefusal(f"{self.command[:20]} is not for this page: {allowed}", allowed)
        if work is health:
            self.owner = ""
        else:
            self.owner = self.server.owners.owner(self.headers.get("Authorization"))
        self.query = {name: each[-1] for name, each in parse_qs(parts.query).items()}
        work(self, *rest)

    def _check_host(self) -> None:
        """Without tokens, a page that a browser shows must not reach us under a name of its own."""
        if not self.server.owners.open:
            return
        host = (self.headers.get("Host") or "localhost").rsplit(":", 1)[0] or "localhost"
        if not is_loopback(host):
            raise Refusal(
                403, "foreign_host", "without tokens only this machine's names are served"
            )

    @property
    def service(self) -> Service:
        return self.server.service


def health(door: Handler) -> None:
    """Whether the service does anything at all; the only page without a token."""
    states = [each["state"] for each in door.service.status()["devices"]]
    well = any(state != "down" for state in states)
    door.send(200 if well else 503, {"status": "ok" if well else "down"})


def queue(door: Handler) -> None:
    door.send(200, door.service.status())


def families(door: Handler) -> None:
    door.send(200, _families())


@functools.cache
def _families() -> dict[str, Any]:
    return schema.families()


def records(door: Handler) -> None:
    door.send(200, _records())


@functools.cache
def _records() -> dict[str, Any]:
    return schema.records()


def facts(door: Handler) -> None:
    problem = requests.problem(door.body(), door.service.limits)
    door.send(200, schema.problem_facts(problem))


def submit(door: Handler) -> None:
    asked = requests.asked(door.body(), door.service.limits)
    wait_s = door.seconds("wait")
    door.server.rates.take(door.owner, 1)
    (job,) = door.service.submit(door.owner, [asked])
    seen = door.service.wait(door.owner, job.id, wait_s)
    where = {"Location": f"/v1/jobs/{job.id}"}
    door.send(200 if seen["answer"] or seen["error"] else 202, seen, where)


def submit_batch(door: Handler) -> None:
    asked = requests.batch(door.body(), door.service.limits)
    door.server.rates.take(door.owner, len(asked))
    jobs = door.service.submit(door.owner, asked)
    door.send(202, {"jobs": [{"id": job.id, "state": job.state} for job in jobs]})


def listing(door: Handler) -> None:
    door.send(200, {"jobs": door.service.last(door.owner)})


def job(door: Handler, id_: str) -> None:
    door.send(200, door.service.wait(door.owner, id_, door.seconds("wait")))


def cancel(door: Handler, id_: str) -> None:
    door.send(200, door.service.cancel(door.owner, id_))


def events(door: Handler, id_: str) -> None:
    door.service.view(door.owner, id_)  # what is not there is told by a status
    door.send_lines(door.service.events(door.owner, id_))


Work = Callable[..., None]
ROUTES: Mapping[tuple[str, ...], Mapping[str, Work]] = {
    ("v1", "health"): {"GET": health},
    ("v1", "queue"): {"GET": queue},
    ("v1", "families"): {"GET": families},
    ("v1", "records"): {"GET": records},
    ("v1", "problem"): {"POST": facts},
    ("v1", "jobs"): {"GET": listing, "POST": submit},
    ("v1", "batch"): {"POST": submit_batch},
    ("v1", "jobs", "*"): {"GET": job, "DELETE": cancel},
    ("v1", "jobs", "*", "events"): {"GET": events},
}


def _route_of(words: list[str]) -> tuple[Mapping[str, Work], list[str]] | None:
    """The methods of a page, and what stands where its route has a star."""
    for route, methods in ROUTES.items():
        if len(route) == len(words) and all(
            a in ("*", b) for a, b in zip(route, words, strict=True)
        ):
            return methods, [b for a, b in zip(route, words, strict=True) if a == "*"]
    return None
