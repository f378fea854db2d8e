"""What an operator is, and what several of them plant."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tree_sitter import Node

from hgemm_packs.generator.core.spec import Choice
from hgemm_packs.generator.redteam.mutation.code import Change, Code

VALUES, SIZES, ADDRESSES, STATE, ORDER, PRECISION, RESOURCES = KINDS = (
    *("values", "sizes", "addresses", "state"),
    *("order", "precision", "resources"),
)

Fields = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class InSource:
    """Plants a fault in the text: `find` gives every change that it can make to a source."""

    name: str
    kind: str
    find: Callable[[Code], Iterator[Change]]


@dataclass(frozen=True, slots=True)
class InRecord:
    """Plants a fault in the launch record: `find` gives every other value that it can put, as the
    path of a field and the value."""

    name: str
    kind: str
    find: Callable[[Fields], Iterator[tuple[str, Any]]]


@dataclass(frozen=True, slots=True)
class InGenome:
    """Builds a kernel of another genome than its record is of: one of `genes` differs."""

    name: str
    kind: str
    genes: tuple[str, ...]


Operator = InSource | InRecord | InGenome


@dataclass(frozen=True, slots=True)
class Honest:
    """A kernel before anything is planted in it."""

    choice: Choice
    source: str
    fields: Fields


#: Sums that are rounded and stored: arguments of these.
ROUNDED = ("pack2",)
#: Products of operands that are in registers.
MULTIPLIED = ("mma16816",)
#: Statements that store into C.
STORED = ("store_global16", "store_if", "store_box", "store_token", "store_block", "store_turned")
#: A sum as it is rounded: its place, X in the text.
X = "X"


def rounded(code: Code, text: str, helpers: str = "") -> Iterator[Change]:
    """Every sum that is about to be rounded, as `text` makes it of X."""
    for _, given in code.calls(*ROUNDED):
        for each in given:
            if code.text(each) != "0.0f":
                yield code.put(each, text.replace(X, f"({code.text(each)})"), helpers)


def replaced(code: Code, old: str, new: str) -> Iterator[Change]:
    """Every `old` in the strings of inline assembly, as `new`."""
    for node in code.nodes("gnu_asm_expression"):
        for literal in _literals(node):
            raw = code.text(literal)
            at = raw.find(old)
            while at >= 0:
                start = literal.start_byte + at
                yield Change(start, start + len(old), new)
                at = raw.find(old, at + 1)


def _literals(node: Node) -> Iterator[Node]:
    todo = list(node.children)
    while todo:
        each = todo.pop(0)
        if each.type == "string_literal":
            yield each
        else:
            todo[:0] = each.children


def operator_of(node: Node) -> str:
    """The sign of a binary expression."""
    sign = node.child_by_field_name("operator")
    return sign.type if sign is not None else ""


def sides(node: Node) -> tuple[Node, Node]:
    """Left and right of a binary expression."""
    left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
    assert left is not None and right is not None
    return left, right


def turned_signs(code: Code, signs: Mapping[str, str]) -> Iterator[Change]:
    """Every binary expression of one of these signs, with the other."""
    for node in code.nodes("binary_expression"):
        sign = node.child_by_field_name("operator")
        if sign is not None and sign.type in signs:
            yield code.put(sign, signs[sign.type])
