"""The key of a server: used to sign requests, and never seen again.

Made from the environment or a file, never from an option: options stand in the list of processes.
"""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "OPENAI_API_KEY"
HIDDEN = "[key]"
#: Shorter keys are words that stand in texts by chance; local servers take anything.
LEAST = 8


class Key:
    """A secret that `reveal` alone gives; `str` and `repr` do not, and it cannot be pickled."""

    __slots__ = ("_value",)

    def __init__(self, value: str = "") -> None:
        self._value = value.strip()

    def reveal(self) -> str:
        """The key itself, for the header of a request. A server that wants none gets a word."""
        return self._value or "none"

    def hide(self, text: str) -> str:
        """The text without the key: servers repeat what they were sent."""
        return text.replace(self._value, HIDDEN) if len(self._value) >= LEAST else text

    def __repr__(self) -> str:
        return HIDDEN

    def __reduce__(self) -> str:
        raise TypeError("a key is not written anywhere")


def find_key(path: Path | None = None) -> Key:
    """The key in a file, else in the environment (OPENAI_API_KEY), else none. Raises OSError, or
    ValueError for a file of several lines."""
    if path is None:
        return Key(os.environ.get(VARIABLE, ""))
    text = path.read_text(encoding="utf-8").strip()
    if len(text.split()) != 1:
        raise ValueError(f"{path} is not one key")
    return Key(text)
