"""Bytes from a Hub under limits: size, speed, time, attempts.

Called by `hub` with URLs of its own making, over huggingface_hub's session (its proxies, offline
switch and redirects). huggingface_hub's own download waits as long as a server asks and takes as
much as it sends, so that is bounded here. What the bytes mean is never looked at.
"""

from __future__ import annotations

import contextlib
import random
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from ..settings import LOGGER

if TYPE_CHECKING:
    import httpx2

#: Bytes that have come so far of how many; the second is 0 while unknown.
Tick = Callable[[int, int], None]


class HubError(OSError):
    """A Hub that cannot be reached or must not be believed; `code` is stable, the text is plain."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a server is waited for. An attempt ends after `silence_s` without a byte, `head_s`
    without a whole head, or `window_s` with under `window_bytes`; one that went on where the last
    ended and brought `progress_bytes` is not counted among the `attempts`. Waits between them
    double from `wait_s`; a server that asks for more than `longest_wait_s` is given up."""

    silence_s: float = 20.0
    head_s: float = 60.0
    window_s: float = 30.0
    window_bytes: int = 64 << 10
    progress_bytes: int = 1 << 20
    attempts: int = 5
    wait_s: float = 1.0
    longest_wait_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Request:
    """One file: `what` is its name in messages, `limit` the most bytes it may have, `size` how many
    it must have where that is known, `commit` the one that the server must say it is of."""

    url: str
    what: str
    limit: int
    headers: Mapping[str, str]
    size: int | None = None
    commit: str | None = None


class _Again(Exception):
    """An attempt that failed as networks do; `wait_s` is what the server asked for. `anew`: it
    began with the first byte again, though some had come."""

    anew = False

    def __init__(self, code: str, text: str, wait_s: float | None = None) -> None:
        super().__init__(text)
        self.code = code
        self.wait_s = wait_s


def receive(request: Request, sink: BinaryIO, patience: Patience, tick: Tick | None = None) -> None:
    """Write the file to `sink`, from the sink's end on where the server can start there.

    Raises HubError: too much, refused, or failed in every attempt. What has come stays in the sink.
    """
    failures = 0
    while True:
        before = sink.seek(0, 2)
        try:
            _once(request, sink, patience, tick)
            return
        except _Again as error:
            # A file that begins anew each time, a little longer, would come many times over.
            if error.anew or sink.tell() - before < patience.progress_bytes:
                failures += 1
            if failures >= patience.attempts:
                tried = f"given up after {failures} attempts"
                raise HubError(error.code, f"{request.what}: {error}; {tried}") from None
            wait_s = _wait(request, error, failures, patience)
            LOGGER.warning("%s: %s; again in %.1f s", request.what, error, wait_s)
            time.sleep(wait_s)


def _wait(request: Request, error: _Again, failures: int, patience: Patience) -> float:
    if error.wait_s is None:
        doubled: float = patience.wait_s * 2 ** max(0, failures - 1)
        # Processes that failed together must not come back together.
        return min(doubled, patience.longest_wait_s) * random.uniform(0.5, 1.0)
    if error.wait_s > patience.longest_wait_s:
        text = f"the server asks to wait {error.wait_s:.0f} s: try again later"
        raise HubError(error.code, f"{request.what}: {text}") from None
    return error.wait_s


def _once(request: Request, sink: BinaryIO, patience: Patience, tick: Tick | None) -> None:
    have = sink.tell()
    if have and have == request.size:
        return
    anew = False
    try:
        with _open_response(request, have, patience) as response:
            if have and response.status_code == 416 and _span(response) == (None, have):
                _check_size(request, have)
                return  # the sink holds the whole file
            if have and response.status_code in (200, 416):
                anew, have = True, sink.seek(0)
                sink.truncate()
            _check_status(request, response, anew)
            total = _check_head(request, response, have)
            _pump(request, response, sink, total, patience, tick)
        if total is not None and sink.tell() < total:
            raise _Again("truncated", f"{sink.tell()} of {total} bytes were sent")
    except _Again as error:
        error.anew = anew
        raise


@contextlib.contextmanager
def _open_response(request: Request, have: int, patience: Patience) -> Iterator[httpx2.Response]:
    """The response with its head read. A head that drips is no timeout to the client, which counts
    from byte to byte: a timer closes the session under it."""
    import httpx2
    from huggingface_hub import close_session, get_session
    from huggingface_hub.errors import OfflineModeIsEnabled

    headers = {**request.headers, "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    late = threading.Event()

    def give_up() -> None:
        late.set()
        close_session()

    timer = threading.Timer(patience.head_s, give_up)
    timer.daemon = True
    timer.start()
    try:
        with get_session().stream(
            "GET", request.url, headers=headers, timeout=patience.silence_s
        ) as response:
            timer.cancel()
            yield response
    except OfflineModeIsEnabled:
        raise HubError("offline", f"{request.what}: HF_HUB_OFFLINE is set") from None
    except (httpx2.HTTPError, httpx2.InvalidURL, RuntimeError) as error:
        if late.is_set():
            text = f"no whole head of an answer in {patience.head_s:g} s"
            raise _Again("too_slow", text) from None
        if isinstance(error, httpx2.TimeoutException):
            raise _Again("timeout", f"nothing came for {patience.silence_s:g} s") from None
        if isinstance(error, httpx2.RemoteProtocolError):
            raise _Again("truncated", f"the connection ended early ({error})") from None
        # RuntimeError: another thread's timer closed the session that all share.
        if isinstance(error, (httpx2.NetworkError, RuntimeError)):
            raise _Again("unreachable", f"{type(error).__name__}: {error}") from None
        raise HubError("protocol", f"{request.what}: {type(error).__name__}: {error}") from None
    finally:
        timer.cancel()


_AGAIN = {408, 429, 500, 502, 503, 504}
_REFUSED = {
    "RepoNotFound": ("no_repo", "no such repository, or a private one that the token cannot see"),
    "GatedRepo": ("gated", "the repository wants its conditions accepted on its page first"),
    "RevisionNotFound": ("no_revision", "the repository has no such revision"),
    "EntryNotFound": ("no_file", "the repository has no such file at this commit"),
    401: ("no_repo", "no such repository, or a private one that the token cannot see"),
    403: ("forbidden", "the token does not allow this"),
    404: ("no_file", "not found"),
}


def _check_status(request: Request, response: httpx2.Response, anew: bool) -> None:
    status = response.status_code
    if status in (200, 206):
        return
    if status in _AGAIN or (anew and status == 416):  # a range that was not asked for is no answer
        code = "rate_limited" if status == 429 else "server_error"
        raise _Again(code, f"the server answers {status}", _read_wait_s(response))
    known = _REFUSED.get(response.headers.get("X-Error-Code", "")) or _REFUSED.get(status)
    code, text = known or ("bad_status", "an answer that a Hub does not give")
    raise HubError(code, f"{request.what}: {text} (status {status})")


def _read_wait_s(response: httpx2.Response) -> float | None:
    """What the server asks for: Retry-After, or the end of the Hub's window of requests."""
    asked = (("Retry-After", r"([0-9]{1,9})"), ("RateLimit", r'"\w+";r=0;t=([0-9]{1,9})'))
    for header, pattern in asked:
        match = re.fullmatch(pattern, response.headers.get(header, "").replace(" ", ""))
        if match is not None:
            return float(match[1])
    return None


def _check_head(request: Request, response: httpx2.Response, have: int) -> int | None:
    """The size of the whole file where the server says it, refused before a byte is taken if it
    cannot be right."""
    what = request.what
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise HubError(
            "encoded", f"{what}: the server compresses the answer, so its size cannot be checked"
        )
    if request.commit is not None:
        for answer in (*response.history, response):
            said = answer.headers.get("X-Repo-Commit", request.commit)
            if said != request.commit:
                raise HubError(
                    "moved", f"{what}: the answer is of commit {said[:40]!a}, not {request.commit}"
                )
    if response.status_code == 206:
        start, total = _span(response)
        if start != have:
            raise HubError("bad_range", f"{what}: from byte {start}, {have} was asked for")
    else:
        length = response.headers.get("Content-Length", "")
        total = int(length) if re.fullmatch(r"[0-9]{1,18}", length) else None
    if total is not None:
        _check_size(request, total)
    return total


def _check_size(request: Request, total: int) -> None:
    if total > request.limit:
        raise HubError("too_large", f"{request.what}: {total} bytes, at most {request.limit}")
    if request.size is not None and total != request.size:
        raise HubError("wrong_size", f"{request.what}: {total} bytes, not {request.size}")


def _span(response: httpx2.Response) -> tuple[int | None, int | None]:
    """First byte and size of the whole file, as Content-Range says them."""
    said = response.headers.get("Content-Range", "")
    match = re.fullmatch(r"bytes (?:([0-9]{1,18})-[0-9]{1,18}|\*)/([0-9]{1,18})", said)
    if match is None:
        return None, None
    return int(match[1]) if match[1] else None, int(match[2])


def _pump(
    request: Request,
    response: httpx2.Response,
    sink: BinaryIO,
    total: int | None,
    patience: Patience,
    tick: Tick | None,
) -> None:
    """Move the body; iter_raw hands out what has come, so that even a drip is seen here."""
    most = request.limit if total is None else total
    began, mark = time.monotonic(), sink.tell()
    for chunk in response.iter_raw():
        if sink.tell() + len(chunk) > most:
            raise HubError("too_large", f"{request.what}: more than {most} bytes were sent")
        sink.write(chunk)
        if tick is not None:
            tick(sink.tell(), total or 0)
        elapsed = time.monotonic() - began
        if elapsed >= patience.window_s:
            if sink.tell() - mark < patience.window_bytes:
                raise _Again("too_slow", f"{sink.tell() - mark} bytes in {elapsed:.0f} s")
            began, mark = time.monotonic(), sink.tell()
