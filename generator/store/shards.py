"""Lines of JSON packed for good: `01.jsonl.zip`, a fifth of the text and half of its gzip.

Called by `lines` and `export`. Most bytes of a result are samples, lists of times. They leave the
lines and become columns of whole numbers; everything else stays text. What is unpacked equals what
was packed in every value and in the order of keys: `pack` unpacks what it made and compares.

A zip (LZMA) with three members. `lines` has the lines, in which {"": n} stands for a list of n
numbers. `lists` has a record of each list: digits after the point, divisor, middle. `samples` has
each number's distance from the middle. Where the divisor is 0 numbers count the last digit, else
ticks of CUDA's clock of events over so many calls, which is all that a mean time can be.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

SUFFIX = ".zip"
TICK_NS = 32  # what times of CUDA events are multiples of
LEAST = 3  # numbers of a list that leaves its line
MOST_DIGITS = 9
EXACT = 2**53  # above it float64 does not have every whole number

_DATE = (1980, 1, 1, 0, 0, 0)
_MARK = ""


def pack(records: Sequence[Any]) -> bytes:
    """The file of these lines; the same lines give the same bytes. Raises ValueError for a line
    that would not come back as it is."""
    lists: list[tuple[int, int, int]] = []
    samples: list[int] = []
    lines, header = [], {1: None}
    for record in records:
        known = dict.fromkeys(_calls(record))
        if isinstance(record, dict) and "header" in record:
            header = {**known, 1: None}
        lines.append(_text(_take_lists(record, [*known, *header], lists, samples)))
    flat = [number for each in lists for number in each]
    data = _zip(
        lines="".join(f"{line}\n" for line in lines).encode("ascii"),
        lists=_planes(flat, 3),
        samples=_planes(samples, 1),
    )
    for record, again in zip(records, unpack(data), strict=True):
        if _text(record) != _text(again):
            raise ValueError(f"a line does not come back: {_text(record)[:100]}")
    return data


def unpack(data: bytes) -> list[Any]:
    """The lines of such a file. Raises ValueError, KeyError or BadZipFile for a damaged one."""
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        text, lists, samples = (file.read(name) for name in ("lines", "lists", "samples"))
    lines = [json.loads(line) for line in text.splitlines()]
    lengths = [n for line in lines for n in _lengths(line)]
    numbers = iter(_numbers(lengths, _join_planes(lists, 3), _join_planes(samples, 1)[:, 0]))
    return [_give_lists(line, numbers) for line in lines]


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _calls(value: Any) -> Iterator[int]:
    """Every count of calls in a line: what its times may have been divided by."""
    if isinstance(value, dict):
        for name, each in value.items():
            if name == "calls" and type(each) is int and 0 < each < 2**31:
                yield each
            else:
                yield from _calls(each)


def _take_lists(value: Any, calls: Iterable[int], lists: list[Any], samples: list[int]) -> Any:
    """A line without its lists of numbers, which go to the columns."""
    if isinstance(value, dict):
        if _MARK in value:
            raise ValueError("a line has an empty key")
        return {name: _take_lists(each, calls, lists, samples) for name, each in value.items()}
    if not isinstance(value, list):
        return value
    if len(value) >= LEAST and all(type(each) is float for each in value):
        column = _column(value, calls)
        if column is not None:
            digits, divisor, numbers = column
            middle = sorted(numbers)[len(numbers) // 2]
            lists.append((digits, divisor, middle))
            samples.extend(number - middle for number in numbers)
            return {_MARK: len(value)}
    return [_take_lists(each, calls, lists, samples) for each in value]


def _column(values: Sequence[float], calls: Iterable[int]) -> tuple[int, int, list[int]] | None:
    """Digits, divisor and whole numbers that give exactly these values; None where none do."""
    texts = [repr(value) for value in values]
    if any("e" in text or "n" in text or text == "-0.0" for text in texts):  # 1e-7, nan, inf
        return None
    digits = max(len(text.split(".")[1]) if not text.endswith(".0") else 0 for text in texts)
    if digits > MOST_DIGITS or max(map(abs, values)) * 10**digits >= EXACT:
        return None
    whole = [round(value * 10**digits) for value in values]
    if [number / 10**digits for number in whole] != list(values):
        return None
    if len(set(whole)) > 1:
        for divisor in calls:
            ticks = [round(value * 1000 * divisor / TICK_NS) for value in values]
            products = [tick * TICK_NS * 10**digits for tick in ticks]
            if max(map(abs, products)) >= EXACT:
                continue
            if [round(each / (1000 * divisor)) for each in products] == whole:
                return digits, divisor, ticks
    return digits, 0, whole


def _lengths(value: Any) -> Iterator[int]:
    if isinstance(value, dict):
        if _MARK in value:
            yield value[_MARK]
        else:
            for each in value.values():
                yield from _lengths(each)
    elif isinstance(value, list):
        for each in value:
            yield from _lengths(each)


def _give_lists(value: Any, numbers: Iterator[list[float]]) -> Any:
    """A line with its lists back in their places."""
    if isinstance(value, dict):
        if _MARK in value:
            return next(numbers)
        return {name: _give_lists(each, numbers) for name, each in value.items()}
    if isinstance(value, list):
        return [_give_lists(each, numbers) for each in value]
    return value


def _numbers(lengths: Sequence[int], lists: Any, samples: Any) -> list[list[float]]:
    """The values of every list. Division of whole numbers below 2**53 is exact to the last bit in
    numpy as in Python, so both sides of the comparison in `pack` are one computation."""
    import numpy

    if len(lengths) != len(lists) or sum(lengths) != len(samples):
        raise ValueError(f"{len(lists)} lists and {len(samples)} numbers do not fill the lines")
    digits, divisor, middle = (numpy.repeat(column, lengths) for column in lists.T)
    scale = 10**digits
    whole = samples + middle
    ticks = numpy.rint(whole * TICK_NS * scale / (1000 * numpy.maximum(divisor, 1)))
    values = (numpy.where(divisor > 0, ticks, whole) / scale).tolist()
    found, at = [], 0
    for length in lengths:
        found.append(values[at : at + length])
        at += length
    return found


def _planes(numbers: Sequence[int], width: int) -> bytes:
    """Records of `width` whole numbers as columns: the lowest byte of each, then the next. A sign
    is the lowest bit."""
    import numpy

    signed = numpy.array(numbers, dtype="<i8")
    zigzag = (signed << 1) ^ (signed >> 63)
    planes = zigzag.reshape(-1, width).view("u1").reshape(-1, width, 8)
    return bytes(planes.transpose(1, 2, 0).tobytes())


def _join_planes(data: bytes, width: int) -> Any:
    """What `_planes` was given, an array of records."""
    import numpy

    planes = numpy.frombuffer(data, dtype="u1").reshape(width, 8, -1).transpose(2, 0, 1)
    zigzag = numpy.ascontiguousarray(planes).view("<i8")[:, :, 0]
    return (zigzag >> 1) ^ -(zigzag & 1)


def _zip(**members: bytes) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as file:
        for name, data in members.items():
            file.writestr(zipfile.ZipInfo(name, _DATE), data, zipfile.ZIP_LZMA)
    return made.getvalue()
