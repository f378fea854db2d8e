"""A server on this machine that speaks the OpenAI chat-completions protocol and answers from a
script: good answers, and everything else that a server has ever done to a client.

A script is a list of steps, one a request in the order of arrival, the last of them for all that
come later; or a function of the request's body. The server keeps what it was sent.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Body = dict[str, Any]


@dataclass(frozen=True)
class Step:
    """One answer. `raw` is sent as it is; else `texts` become the choices of a completion, as many
    as there are. `close` says when the connection ends: "" after the answer, "before" any byte,
    "within" it."""

    texts: tuple[str, ...] = ()
    finish: str = "stop"
    refusal: str = ""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    kind: str = "application/json"
    raw: bytes | None = None
    wait_s: float = 0.0
    close: str = ""
    usage: Any = "counted"


def say(*texts: str, **more: Any) -> Step:
    return Step(texts=texts, **more)


def refuse(words: str = "I cannot help with that.") -> Step:
    return Step(texts=("",), refusal=words)


def cut_off(text: str) -> Step:
    return Step(texts=(text,), finish="length")


def status(code: int, words: str = "no", **headers: str) -> Step:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    raw = json.dumps({"error": {"message": words, "type": "x", "code": None}}).encode()
    return Step(status=code, raw=raw, headers=named)


def slow(seconds: float, text: str = "late") -> Step:
    return Step(texts=(text,), wait_s=seconds)


def closed(when: str = "before") -> Step:
    return Step(texts=("x" * 1000,), close=when)


#: Bodies that are no chat completion, by what is wrong with them.
MALFORMED: dict[str, Step] = {
    "half of the JSON": Step(raw=b'{"choices": [{"message": {"content": "ha'),
    "no JSON": Step(raw=b"one moment please"),
    "an HTML page": Step(raw=b"<html><body>Bad gateway</body></html>", kind="text/html"),
    "nothing": Step(raw=b""),
    "no UTF-8": Step(raw=b'{"choices": "\xff\xfe"}'),
    "a list": Step(raw=b"[]"),
    "no choices": Step(raw=b'{"id": "x", "choices": []}'),
    "choices that are a number": Step(raw=b'{"choices": 3}'),
    "a choice without a message": Step(raw=b'{"choices": [{"finish_reason": "stop"}]}'),
    "a message that is a text": Step(raw=b'{"choices": [{"message": "hi"}]}'),
    "content that is an object": Step(raw=b'{"choices": [{"message": {"content": {"a": 1}}}]}'),
    "a deep nest": Step(raw=b"[" * 100_000),
    "an error with status 200": Step(raw=b'{"error": {"message": "overloaded"}}'),
    "plain text of type text/plain": Step(raw=b"hello", kind="text/plain"),
}

Script = Sequence[Step] | Callable[[Body], Step]


@dataclass
class Scripted:
    """A server that runs: its address, and the requests that it was sent."""

    url: str
    bodies: list[Body] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)


def completion(body: Body, step: Step) -> bytes:
    choices = [
        {
            "index": i,
            "finish_reason": step.finish,
            "message": {
                "role": "assistant",
                "content": text or None,
                "refusal": step.refusal or None,
            },
        }
        for i, text in enumerate(step.texts)
    ]
    usage = step.usage
    if usage == "counted":
        prompt = sum(len(m["content"]) for m in body["messages"]) // 4
        words = sum(len(text) for text in step.texts) // 4
        usage = {"prompt_tokens": prompt, "completion_tokens": words}
    return json.dumps(
        {
            "id": "scripted",
            "object": "chat.completion",
            "created": 0,
            "model": body["model"],
            "choices": choices,
            "usage": usage,
        }
    ).encode()


@contextmanager
def serve(script: Script) -> Iterator[Scripted]:
    """A server that answers by a script until the block ends."""
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                number = len(found.bodies)
                found.bodies.append(body)
                found.headers.append({k.lower(): v for k, v in self.headers.items()})
                step = script(body) if callable(script) else script[min(number, len(script) - 1)]
            time.sleep(step.wait_s)
            if self.path != "/v1/chat/completions":
                step = status(404, self.path)
            if step.close == "before":
                self.close_connection = True
                self.connection.close()
                return
            data = completion(body, step) if step.raw is None else step.raw
            try:
                self.send_response(step.status)
                self.send_header("Content-Type", step.kind)
                self.send_header("Content-Length", str(len(data)))
                for name, value in step.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data[: len(data) // 2] if step.close else data)
            except OSError:  # the client did not wait
                self.close_connection = True
            if step.close:
                self.close_connection = True

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    found = Scripted(f"http://127.0.0.1:{server.server_address[1]}/v1")
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
