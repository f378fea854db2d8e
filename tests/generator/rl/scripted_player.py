"""A model that answers from a list, as a chat server of this machine."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@contextmanager
def serving(answers: Sequence[str]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The address of a server whose n-th answer to a conversation is the n-th of `answers`, and the
    requests that it had."""
    asked: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append(body)
            turn = sum(message["role"] == "assistant" for message in body["messages"])
            kind, data = _reply(answers[turn], bool(body.get("stream")))
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1", asked
    finally:
        server.shutdown()
        server.server_close()


def _reply(answer: str, stream: bool) -> tuple[str, bytes]:
    """Media type and body of a whole answer, or of a stream with one chunk."""
    message = {"role": "assistant", "content": answer}
    reply = {"id": "0", "created": 0, "model": "scripted"}
    usage = {"usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}}
    choice = {"index": 0, "finish_reason": "stop"}
    if not stream:
        whole = {"object": "chat.completion", "choices": [{**choice, "message": message}]}
        return "application/json", json.dumps({**reply, **whole, **usage}).encode()
    chunk = {"object": "chat.completion.chunk", "choices": [{**choice, "delta": message}]}
    last = {"object": "chat.completion.chunk", "choices": [], **usage}
    sent = [json.dumps({**reply, **each}) for each in (chunk, last)]
    return "text/event-stream", "".join(f"data: {x}\n\n" for x in (*sent, "[DONE]")).encode()
