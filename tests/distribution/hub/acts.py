"""What a server may do in place of an answer: parts of the cases of faults.py."""

from __future__ import annotations

from tests.distribution.hub.server import Act, Handler


def send(status: int, body: bytes = b"{}", **headers: str) -> Act:
    """Answer with this."""

    def act(handler: Handler, content: bytes) -> bool:
        handler.whole(status, body, **headers)
        return True

    return act


def cut(handler: Handler, content: bytes) -> bool:
    """The first half, then the connection ends."""
    handler.head(200, len(content))
    handler.send(content[: len(content) // 2])
    handler.drop()
    return True


def hang_up(handler: Handler, content: bytes) -> bool:
    """No answer at all."""
    handler.drop()
    return True


def silent(handler: Handler, content: bytes) -> bool:
    """Half of the bytes and then nothing, for longer than anybody waits."""
    handler.head(200, len(content))
    handler.send(content[: len(content) // 2])
    _until_gone(handler, b"", 60)
    return True


def drip(handler: Handler, content: bytes) -> bool:
    """A slow loris: a byte at a time, each in time."""
    handler.head(200, len(content))
    _until_gone(handler, b"\0", 60)
    return True


def drip_head(handler: Handler, content: bytes) -> bool:
    """The same with the head, which no timeout between bytes ends."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    _until_gone(handler, b"a", 60)
    return True


def _until_gone(handler: Handler, data: bytes, seconds: float) -> None:
    handler.connection.settimeout(0.05)
    for _ in range(int(seconds / 0.05)):
        handler.send(data)
        try:
            if handler.connection.recv(1) == b"":
                break
        except TimeoutError:
            continue
    handler.drop()


def endless(handler: Handler, content: bytes) -> bool:
    """No length, and bytes for as long as somebody takes them."""
    handler.head(200, None)
    for _ in range(40):
        handler.send(bytes(1 << 20))
    handler.drop()
    return True


def advertise(size: int) -> Act:
    """Say that so many bytes follow."""

    def act(handler: Handler, content: bytes) -> bool:
        handler.head(200, size)
        handler.send(content)
        handler.drop()
        return True

    return act


def no_ranges(handler: Handler, content: bytes) -> bool:
    """The whole file, whatever part was asked for."""
    handler.whole(200, content)
    return True


def wrong_range(handler: Handler, content: bytes) -> bool:
    """Another part than the one asked for."""
    handler.whole(206, content[1:], Content_Range=f"bytes 1-{len(content) - 1}/{len(content)}")
    return True


def flipped(data: bytes) -> bytes:
    """One bit of the middle changed."""
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
