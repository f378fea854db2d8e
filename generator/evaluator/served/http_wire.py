"""HTTP as the evaluator speaks it: bodies under limits, JSON out, every failure as JSON.

Base of the HTTP door, which knows the pages. It parses no more than the standard library does, and
reads nothing that has not said how long it is.
"""

from __future__ import annotations

import json
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler
from typing import Any

from hgemm_packs.generator.evaluator.served import requests
from hgemm_packs.generator.evaluator.served.requests import Limits, Refusal

SOCKET_S = 30.0  # of silence, after which a client has gone
BODY_S = 60.0  # for a whole body
_CHUNK = 1 << 16
log = logging.getLogger("hgemm_packs.evaluator")


class Wire(BaseHTTPRequestHandler, ABC):
    """One connection. `route` answers a request; whatever goes wrong is answered as JSON."""

    limits = Limits()
    _begun = _drained = False
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "hgemm_packs", ""
    timeout = SOCKET_S

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):  # each method of HTTP; which a route has, ROUTES says
            return self._answer
        raise AttributeError(name)

    def _answer(self) -> None:
        self._begun = self._drained = False
        try:
            self.route()
        except Refusal as refusal:
            self._refuse(refusal)
        except (BrokenPipeError, ConnectionError, TimeoutError):
            self.close_connection = True
        except Exception:  # ours: told without its words
            log.exception("a request failed in the server")
            self._refuse(Refusal(500, "internal", "the server failed over this request"))

    @abstractmethod
    def route(self) -> None:
        """Answer the request, by `send` or `send_lines`. Raises Refusal."""

    def body(self) -> Any:
        """The JSON of the request. Raises Refusal."""
        if "Transfer-Encoding" in self.headers:
            raise Refusal(411, "no_length", "a body has a Content-Length")
        said = self.headers.get_all("Content-Length", [])
        if not said:
            raise Refusal(411, "no_length", "a body has a Content-Length")
        if len(said) > 1:
            raise Refusal(400, "bad_length", "a body has one Content-Length")
        text = said[0]
        if not (text.isascii() and text.isdecimal() and len(text) < 20):
            raise Refusal(400, "bad_length", "Content-Length is a number")
        if int(text) > self.limits.body_bytes:
            words = f"a body of {text} bytes, at most {self.limits.body_bytes}"
            raise Refusal(413, "body_too_large", words)
        kind = self.headers.get_content_type()
        if kind != "application/json":
            raise Refusal(415, "not_json", "a body is application/json")
        data = self._read(int(text))
        self._drained = True
        return requests.read(data)

    def _read(self, size: int) -> bytes:
        until, data = time.monotonic() + BODY_S, b""
        while len(data) < size:
            if time.monotonic() > until:
                raise Refusal(408, "slow", f"the body was not there within {BODY_S:g} s")
            part = self.rfile.read1(min(_CHUNK, size - len(data)))
            if not part:
                raise Refusal(400, "short_body", f"{len(data)} bytes of {size}")
            data += part
        return data

    def seconds(self, name: str) -> float:
        """A query's number of seconds, up to the limit; 0 where there is none. Raises Refusal."""
        text = self.query.get(name, "0")
        if not (text.isascii() and text.replace(".", "", 1).isdecimal() and len(text) < 12):
            raise Refusal(400, "bad_query", f"{name} is a number of seconds")
        return min(float(text), self.limits.wait_s)

    def send(self, status: int, document: Any, headers: Mapping[str, str] | None = None) -> None:
        """Answer with JSON."""
        data = json.dumps(document, allow_nan=False).encode()
        self._begun = True
        self.request_version = self.protocol_version  # to a client of the nineties as well
        self.send_response(status)
        self._close_if_unread()
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("X-Content-Type-Options", "nosniff")
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def send_lines(self, lines: Any) -> None:
        """Answer with JSON lines as they come, in chunks."""
        self._begun = True
        self.send_response(200)
        self._close_if_unread()
        self.send_header("Content-Type", "application/x-ndjson")
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        for line in lines:
            data = json.dumps(line, allow_nan=False).encode() + b"\n"
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def _close_if_unread(self) -> None:
        """What is still on its way of a body is not the next request."""
        if not self._drained and {"Content-Length", "Transfer-Encoding"} & {*self.headers}:
            self.close_connection = True
            self.send_header("Connection", "close")

    def _refuse(self, refusal: Refusal) -> None:
        if self._begun:  # the answer is under way: all that is left is to end it
            self.close_connection = True
            return
        headers = {}
        if refusal.retry_after_s:
            headers["Retry-After"] = str(int(refusal.retry_after_s + 0.999))
        if refusal.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        if isinstance(refusal, MethodRefusal):
            headers["Allow"] = refusal.allowed
        try:
            self.send(refusal.status, refusal.document(), headers)
        except OSError:
            self.close_connection = True

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the standard library refuses, as JSON as well."""
        self.close_connection = True
        self.headers = getattr(self, "headers", None) or _NO_HEADERS
        self.command = getattr(self, "command", None) or ""
        self.requestline = getattr(self, "requestline", "")
        words = message or "the request is no HTTP of ours"
        self.send(code, Refusal(code, "bad_http", words).document(), {"Connection": "close"})

    def log_message(self, format: str, *args: Any) -> None:
        """Requests by their first line, at level debug; headers, and so tokens, never."""
        log.debug("%s %s", self.address_string(), format % args)


class MethodRefusal(Refusal):
    """A method that a page has not; `allowed` are those that it has."""

    def __init__(self, text: str, allowed: str) -> None:
        super().__init__(405, "bad_method", text)
        self.allowed = allowed


_NO_HEADERS: Any = BaseHTTPRequestHandler.MessageClass()
