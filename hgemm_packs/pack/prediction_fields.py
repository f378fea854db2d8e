"""The fields of a predictor, with type and bounds of each, as `manifest_fields` has the others.

A predictor is numbers and names from closed lists: nothing in it is run, and every walk through its
trees ends. `predictor` says what fields must fit together.
"""

from __future__ import annotations

from typing import Any

from .features import FEATURES, NUMBERS
from .manifest_fields import LINE, NAME, PROBLEM_FIELDS, RANGE, SHA256
from .predictor import Candidate, Dims, Model, Predictor
from .strict_json import Check, integer, listing, number, record

MAX_PREDICTORS = 16
#: Of a line: one that reaches every other limit is shorter.
MAX_PREDICTOR_BYTES = 1 << 23
MAX_FAMILIES, MAX_CANDIDATES, MAX_TREES, MAX_NODES = 32, 1024, 512, 65535
_LARGE = 1e9


def _fast(kinds: frozenset[type], low: float, high: float, slow: Check, most: int) -> Check:
    """An array of at least one number, as `slow` takes it: thousands are looked at at once."""

    def check(value: Any) -> tuple[Any, ...]:
        fine = type(value) is list and 0 < len(value) <= most and kinds.issuperset(map(type, value))
        if fine and low <= min(value) and max(value) <= high:
            return tuple(value)
        checked: tuple[Any, ...] = slow(value)
        return checked

    return check


def _integers(low: int, high: int, most: int) -> Check:
    slow = listing(integer(low, high), 1, most)
    return _fast(frozenset({int}), low, high, slow, most)


def _numbers(most: int) -> Check:
    slow = listing(number(-_LARGE, _LARGE), 1, most)
    return _fast(frozenset({float}), -_LARGE, _LARGE, slow, most)


MODEL = record(
    Model,
    base=number(-_LARGE, _LARGE),
    roots=_integers(0, MAX_NODES, MAX_TREES),
    feature=_integers(-1, len(FEATURES) - 1, MAX_NODES),
    number=_numbers(MAX_NODES),
    right=_integers(0, MAX_NODES, MAX_NODES),
)


CANDIDATE = record(
    Candidate,
    kernel=SHA256,
    layout=PROBLEM_FIELDS["layout"],
    dtype=PROBLEM_FIELDS["dtype"],
    dims=record(Dims, m=RANGE, n=RANGE, k=RANGE),
    numbers=listing(integer(0, 1 << 24), len(NUMBERS), len(NUMBERS)),
)
PREDICTOR = record(
    Predictor,
    profile=LINE,
    families=listing(NAME, 1, MAX_FAMILIES),
    margin=number(1.0, 100.0),
    candidates=listing(CANDIDATE, 1, MAX_CANDIDATES),
    ours=MODEL,
    torch=MODEL,
    doubt=MODEL,
)
#: As the head of a manifest and a source document have them.
PREDICTORS = listing(PREDICTOR, 0, MAX_PREDICTORS)
