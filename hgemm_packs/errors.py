"""The package's own exceptions: a refused pack, an unusable cache, a fallback that STRICT forbids.

Raised by everything that reads packs; `discover` turns a PackError into one warning, so that none
leaves `matmul`. Nothing here imports anything but the standard library.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator


class PackError(Exception):
    """A pack, manifest or source document that must not be used.

    `code` is stable and meant for programs and tests, `where` is the path of the offending value
    inside the document ("" when the document as a whole is at fault), `detail` is for people.
    """

    def __init__(self, code: str, detail: str, where: str = "") -> None:
        super().__init__(code, detail, where)
        self.code = code
        self.detail = detail
        self.where = where

    def within(self, part: str) -> PackError:
        """The same error seen from one level further out: `part` goes in front of `where`."""
        joint = "" if not self.where or self.where.startswith("[") else "."
        return PackError(self.code, self.detail, f"{part}{joint}{self.where}")

    def __str__(self) -> str:
        place = f" at {self.where}" if self.where else ""
        return f"{self.code}{place}: {self.detail}"


class TrustError(PackError):
    """Nobody the user trusts vouches for this pack, or who does vouches for other bytes."""


class FallbackError(RuntimeError):
    """HGEMM_PACKS_STRICT=1 and a call would have used torch's own matmul; the text says why."""


class InvariantError(RuntimeError):
    """`options(batch_invariant=True)` holds, and no batch-invariant kernel runs a product; the text
    names it and says why."""


class TuneError(RuntimeError):
    """`tune` cannot measure here; the text says why and what would help."""


class CacheError(OSError):
    """The cache cannot be used as it is: no home, a link, somebody else's; the text says which."""


@contextlib.contextmanager
def of_path(path: str | os.PathLike[str]) -> Iterator[None]:
    """Have the operating system's errors name `path`, which the user knows, in place of no file (a
    full disk) or of a temporary one. Errors of our own pass."""
    try:
        yield
    except OSError as error:
        if error.errno is not None:
            error.filename, error.filename2 = os.fspath(path), None
        raise
