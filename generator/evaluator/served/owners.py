"""Who may ask a served evaluator, by token, and how often.

Called by the HTTP door. Tokens are read from a file that only its owner may read, compared in
constant time, and never printed, logged or stored: everything else knows their owners' names.
"""

from __future__ import annotations

import hmac
import re
import stat
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from hgemm_packs.generator.evaluator.served.requests import Refusal

LOCAL = "local"  # who asks where there are no tokens
LEAST_TOKEN = 16  # characters: shorter ones can be guessed
_LINE = re.compile(r"([A-Za-z0-9_.-]{1,64})\s+(\S+)")


class Owners:
    """Tokens by owner; none: everybody is LOCAL."""

    def __init__(self, tokens: Mapping[str, str] | None = None) -> None:
        self._tokens = {name: token.encode() for name, token in (tokens or {}).items()}

    @classmethod
    def of_file(cls, path: Path) -> Owners:
        """Read lines of "NAME TOKEN"; empty ones and those that begin with # are skipped.

        Raises OSError, and ValueError for another line, a token of fewer than LEAST_TOKEN
        characters, a name or token that is there twice, or a file that others may read. No message
        has a token in it.
        """
        if path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
            raise ValueError(f"{path} has tokens, and others may read it: chmod 600 {path}")
        tokens: dict[str, str] = {}
        lines = path.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines, 1):
            if not line.strip() or line.startswith("#"):
                continue
            match = _LINE.fullmatch(line.strip())
            if match is None:
                raise ValueError(f"{path}:{number}: a line is NAME TOKEN")
            name, token = match.groups()
            if len(token) < LEAST_TOKEN:
                words = f"the token of {name} has fewer than {LEAST_TOKEN} characters"
                raise ValueError(f"{path}:{number}: {words}")
            if name in tokens or token in tokens.values():
                raise ValueError(f"{path}:{number}: {name} or its token is there twice")
            tokens[name] = token
        if not tokens:
            raise ValueError(f"{path} has no tokens")
        return cls(tokens)

    @property
    def open(self) -> bool:
        """Whether nobody needs a token."""
        return not self._tokens

    def owner(self, authorization: str | None) -> str:
        """Whose token an Authorization header has. Raises Refusal."""
        if self.open:
            return LOCAL
        kind, _, given = (authorization or "").partition(" ")
        said = given.strip().encode("utf-8", "surrogateescape")
        found = ""
        for name, token in self._tokens.items():  # all of them: no time tells which came near
            if hmac.compare_digest(said, token):
                found = name
        if kind.lower() != "bearer" or not found:
            raise Refusal(401, "unauthorized", "a known token is needed: Authorization: Bearer ...")
        return found


class Rates:
    """At most `per_minute` candidates of an owner in any minute, all at once if need be; more are
    earned evenly."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._clock = per_minute, clock
        self._left: dict[str, tuple[float, float]] = {}  # candidates, as of when
        self._lock = threading.Lock()

    def take(self, owner: str, count: int) -> None:
        """Take `count` at once or none. Raises Refusal, with the seconds after which it would be
        granted."""
        with self._lock:
            now = self._clock()
            left, since = self._left.get(owner, (float(self._most), now))
            left = min(float(self._most), left + (now - since) * self._most / 60.0)
            if count > left:
                self._left[owner] = left, now
                wait = (min(count, self._most) - left) * 60.0 / self._most
                words = f"{count} candidates now are more than {self._most} a minute"
                raise Refusal(429, "too_many", words, max(1.0, wait))
            self._left[owner] = left - count, now
