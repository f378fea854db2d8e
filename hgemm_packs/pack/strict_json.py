"""Reads JSON without forgiving anything, and the small checks that documents are described with.

`manifest` and the generator's source document are both written as tables of these checks, so there
is one validator. A check takes a decoded value and returns the value to keep, or raises PackError;
containers add the path of what failed on the way out.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from typing import Any

from ..errors import PackError

#: Every check has this shape. The values are whatever JSON holds, hence Any.
Check = Callable[[Any], Any]


#: Arrays and objects within one another: more than any document of ours or a Hub's has.
MAX_DEPTH = 32
#: Python's own recursion limit. As long as it stands, decoders give up before the stack ends.
_SAFE_RECURSION = 1000
_BRACKETS = bytes.maketrans(b"{}", b"[]")
_NO_MARK = bytes(set(range(256)) - set(b'"[]{}'))


def read_json(data: bytes) -> Any:
    """Decode UTF-8 JSON. Raises PackError for anything that two readers could see differently, and
    for nesting that no document of ours has."""
    try:
        text = data.decode("utf-8")
        check_depth(data)
        return json.loads(
            text,
            object_pairs_hook=_unique,
            parse_constant=_refuse_constant,
        )
    except UnicodeDecodeError as error:
        raise PackError("not_utf8", f"byte {error.start} is not UTF-8") from None
    except RecursionError:
        raise _deep() from None
    except json.JSONDecodeError as error:
        raise PackError("not_json", f"{error.msg} at character {error.pos}") from None
    except ValueError as error:  # int() refuses thousands of digits
        raise PackError("out_of_bounds", str(error)) from None


def check_depth(data: bytes) -> None:
    """Raises PackError for JSON that would lead a decoder to the end of the stack.

    Brackets outside strings may nest MAX_DEPTH deep; of those that nothing closes as many more
    pass. To look costs 3 ms per MB, so it is done where the program has raised the limit only.
    """
    if sys.getrecursionlimit() <= _SAFE_RECURSION:
        return
    if b"\\" in data:  # what it escapes ends no string
        data = re.sub(rb"\\.", b"", data, flags=re.DOTALL)
    marks = data.translate(_BRACKETS, _NO_MARK).replace(b'""', b"")
    marks = b"".join(marks.split(b'"')[::2])
    for _ in range(MAX_DEPTH):
        marks = marks.replace(b"[]", b"")  # the innermost of every branch
    if b"[]" in marks or marks.count(b"[") > MAX_DEPTH:
        raise _deep()


def _deep() -> PackError:
    return PackError("too_deep", "the document is nested too deeply")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise PackError("duplicate_json_key", f"{_show(key)} appears twice in one object")
            seen.add(key)
    return result


def _refuse_constant(name: str) -> Any:
    raise PackError("not_finite", f"{name} is not a number")


def _show(value: Any) -> str:
    """At most 60 characters of a value. Containers are only named: to print one that is nested as
    deep as the decoder allows would exceed the same limit, and all of 16 MB for 60 characters. Nor
    does Python print integers of thousands of digits."""
    if type(value) in (list, dict):
        return "an array" if type(value) is list else "an object"
    if type(value) is int and value.bit_length() > 180:
        return f"an integer of {value.bit_length()} bits"
    text = ascii(value[:60] if type(value) is str else value)
    return text if len(text) <= 60 else text[:57] + "..."


def _wrong_type(value: Any, wanted: str) -> PackError:
    return PackError("wrong_type", f"{_show(value)} is not {wanted}")


def integer(low: int, high: int, multiple_of: int = 1) -> Check:
    """An int (bool and 1.0 are not) in low..high."""

    def check(value: Any) -> int:
        if type(value) is not int:
            raise _wrong_type(value, "an integer")
        if not low <= value <= high or value % multiple_of:
            step = f" in steps of {multiple_of}" if multiple_of > 1 else ""
            raise PackError("out_of_bounds", f"{_show(value)} is not in {low}..{high}{step}")
        return value

    return check


def number(low: float, high: float) -> Check:
    """A finite int or float in low..high; always handed on as float."""

    def check(value: Any) -> float:
        if type(value) is not float and type(value) is not int:
            raise _wrong_type(value, "a number")
        if not low <= value <= high:
            if value - value != 0:  # 1e999 decodes to infinity
                raise PackError("not_finite", f"{value} is not finite")
            raise PackError("out_of_bounds", f"{_show(value)} is not in {low:g}..{high:g}")
        return float(value)

    return check


def boolean(value: Any) -> bool:
    """True or false, not 0 or 1."""
    if type(value) is not bool:
        raise _wrong_type(value, "true or false")
    return value


def text(pattern: str, code: str = "bad_text") -> Check:
    """A string that matches `pattern` from end to end."""
    matches = re.compile(pattern).fullmatch

    def check(value: Any) -> str:
        if type(value) is not str:
            raise _wrong_type(value, "a string")
        if matches(value) is None:
            raise PackError(code, f"{_show(value)} does not match {pattern}")
        return value

    return check


def one_of(*allowed: int | str) -> Check:
    """One of a closed set; returns the set's own object, so that thousands of rows share it."""
    kinds = {type(option) for option in allowed}
    by_value = {option: option for option in allowed}

    def check(value: Any) -> int | str:
        if type(value) not in kinds:
            raise _wrong_type(value, "one of " + ", ".join(map(repr, allowed)))
        if value not in by_value:
            options = ", ".join(map(repr, allowed))
            raise PackError("bad_value", f"{_show(value)} is not one of {options}")
        return by_value[value]

    return check


def nullable(check: Check) -> Check:
    """null, or what `check` takes."""
    return lambda value: None if value is None else check(value)


def record(
    make: Callable[..., Any], optional: dict[str, Check] | None = None, /, **fields: Check
) -> Check:
    """An object with exactly these fields and perhaps the optional ones, handed to `make` by
    name."""
    names = frozenset(fields)
    every = {**fields, **(optional or {})}
    needed = tuple(fields.items())

    def check(value: Any) -> Any:
        if type(value) is not dict:
            raise _wrong_type(value, "an object")
        items = needed
        if value.keys() != names:
            for name in sorted(value.keys() - every.keys()):
                raise PackError("unknown_field", f"{_show(name)} is an unknown field")
            for name in sorted(names - value.keys()):
                raise PackError("missing_field", f"{name!r} is missing")
            items = tuple((name, field) for name, field in every.items() if name in value)
        checked = {}
        for name, field in items:
            try:
                checked[name] = field(value[name])
            except PackError as error:
                raise error.within(name) from None
        return make(**checked)

    return check


def listing(item: Check, low: int, high: int) -> Check:
    """An array of low..high items; handed on as a tuple."""

    def check(value: Any) -> tuple[Any, ...]:
        if type(value) is not list:
            raise _wrong_type(value, "an array")
        if not low <= len(value) <= high:
            raise PackError("bad_count", f"{len(value)} items, not {low}..{high}")
        checked = []
        for each in value:
            try:
                checked.append(item(each))
            except PackError as error:
                raise error.within(f"[{len(checked)}]") from None
        return tuple(checked)

    return check


def mapping(key: Check, item: Check, high: int) -> Check:
    """An object of at most `high` free keys."""

    def check(value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise _wrong_type(value, "an object")
        if len(value) > high:
            raise PackError("bad_count", f"{len(value)} entries, not at most {high}")
        result = {}
        for name, each in value.items():
            try:
                result[key(name)] = item(each)
            except PackError as error:
                raise error.within(_show(name)) from None
        return result

    return check
