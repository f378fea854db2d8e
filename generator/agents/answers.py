"""What a model's text says: JSON, a whole file, or edits of one. The text may be anything.

Called by the roles. Nothing here trusts a model: what is not there is an `Unclear` with words that
the model can be shown.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

#: Characters of a reply that are read; no answer that is of use is longer.
MOST = 400_000
_SEARCH = re.compile(r"<{5,9} *SEARCH")
_MIDDLE = re.compile(r"={5,9}")
_REPLACE = re.compile(r">{5,9} *REPLACE")
_RECORD = re.compile(r"^RECORD: *(.*)$", re.MULTILINE)
_KERNEL = re.compile(r'extern\s+"C"\s+__global__\s+void\s+(?:__\w+\([^)]*\)\s+)*((?!__)\w+)\s*\(')


class Unclear(ValueError):
    """The text does not say what was asked for; the message tells a model how to say it."""


@dataclass(frozen=True, slots=True)
class Edit:
    """A piece of a file, as it stands there once, and what takes its place."""

    search: str
    replace: str


def read_object(text: str) -> dict[str, Any]:
    """The JSON object of a text: alone, in a fence, or among words. Raises Unclear."""
    text = text[:MOST].strip()
    for candidate in (text, *_blocks(text), _braced(text)):
        try:
            found = json.loads(candidate)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            return found
    raise Unclear("the answer is not the JSON object that was asked for")


def _braced(text: str) -> str:
    """From the first brace to the last."""
    start, end = text.find("{"), text.rfind("}")
    return text[start : end + 1] if 0 <= start < end else ""


def _blocks(text: str) -> list[str]:
    """What stands between lines that begin with three backticks."""
    found: list[str] = []
    inside: list[str] | None = None
    for line in text[:MOST].splitlines(keepends=True):
        if not line.startswith("```"):
            if inside is not None:
                inside.append(line)
        elif inside is None:
            inside = []
        else:
            found.append("".join(inside))
            inside = None
    return found


def read_edits(text: str) -> list[Edit]:
    """The search-and-replace blocks of a text, none where there are none. Raises Unclear for one
    without an end."""
    found: list[Edit] = []
    halves: tuple[list[str], list[str]] = ([], [])
    at: int | None = None  # the half that lines go to
    for line in text[:MOST].splitlines(keepends=True):
        mark = line.rstrip()
        if _SEARCH.fullmatch(mark) and at is None:
            halves, at = ([], []), 0
        elif _MIDDLE.fullmatch(mark) and at == 0:
            at = 1
        elif _REPLACE.fullmatch(mark) and at == 1:
            found.append(Edit("".join(halves[0]), "".join(halves[1])))
            at = None
        elif at is not None:
            halves[at].append(line)
    if at is not None:
        raise Unclear("a SEARCH block has no =======, or no >>>>>>> REPLACE")
    return found


def apply(source: str, edits: list[Edit]) -> str:
    """The source with each edit made in turn. Raises Unclear where a piece is not there, or there
    more than once."""
    for number, edit in enumerate(edits, 1):
        count = source.count(edit.search) if edit.search.strip() else 0
        if count != 1:
            raise Unclear(
                f"the text of SEARCH block {number} stands {count} times in the file; it must "
                "stand there once, to the letter"
            )
        source = source.replace(edit.search, edit.replace)
    return source


def read_file(text: str) -> str:
    """The device code of a text: that of its one fence that has a kernel. Raises Unclear."""
    kernels = [block for block in _blocks(text) if "__global__" in block]
    if len(kernels) != 1:
        raise Unclear(
            f"{len(kernels)} code blocks have a __global__ function; asked for are one block with "
            "the whole file, or SEARCH and REPLACE blocks"
        )
    return kernels[0]


def kernel_name(source: str) -> str:
    """The name of the source's kernel. Raises Unclear where there is none, or several."""
    names = _KERNEL.findall(source)
    if len(names) != 1:
        raise Unclear(
            f'the file has {len(names)} extern "C" __global__ functions; one is asked for'
        )
    return str(names[0])


def read_record(text: str) -> dict[str, Any]:
    """The launch-record fields of a text, from its lines that begin with RECORD:. Raises Unclear
    for one that is no JSON object."""
    found: dict[str, Any] = {}
    for line in _RECORD.findall(text[:MOST]):
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError):
            fields = None
        if not isinstance(fields, dict):
            raise Unclear("a line that begins with RECORD: goes on with one JSON object")
        found |= fields
    return found
