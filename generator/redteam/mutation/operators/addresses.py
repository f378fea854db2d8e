"""Faults of addresses: rounded down, of 32 bits, with another stride, off by one, without what
keeps them inside."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tree_sitter import Node

from hgemm_packs.generator.redteam.mutation.code import Change, Code
from hgemm_packs.generator.redteam.mutation.operators.base import (
    ADDRESSES,
    InSource,
    operator_of,
    replaced,
    sides,
)

_POINTERS = ("a", "b", "c")
_STRIDES = ("lda", "ldb", "ldc")
_PREDICATES = ("@p ", "@inside ", "@wanted ")


def _narrow(code: Code) -> Iterator[Change]:
    for node in code.nodes("cast_expression"):
        kind = node.child_by_field_name("type")
        if kind is not None and code.text(kind) in ("i64", "u64"):
            yield code.put(kind, {"i64": "int", "u64": "u32"}[code.text(kind)])
    for node in code.nodes("template_function"):
        if re.fullmatch(r"static_cast<u64>", code.text(node)):
            yield code.put(node, "static_cast<u32>")


def _round_base_down(code: Code) -> Iterator[Change]:
    for name in _POINTERS:
        if name in code.params:
            kind = "u16*" if name == "c" else "const u16*"
            for bytes_ in (32, 128, 256):
                yield code.open_kernel(f"{name} = ({kind})((u64){name} & ~{bytes_ - 1}ull);")


def _drop_clamp(code: Code) -> Iterator[Change]:
    for call, given in code.calls("min_of"):
        for each in given:
            yield code.put(call, f"({code.text(each)})")


def _drop_predicate(code: Code) -> Iterator[Change]:
    for word in _PREDICATES:
        yield from replaced(code, word, "")
    for node in code.nodes("conditional_expression"):
        other, one = (
            node.child_by_field_name("alternative"),
            node.child_by_field_name("consequence"),
        )
        if one is not None and other is not None and code.text(other) == "0":
            yield code.put(node, f"({code.text(one)})")


def _drop_condition(code: Code) -> Iterator[Change]:
    """One of two conditions that must hold together."""
    for node in code.nodes("binary_expression"):
        if operator_of(node) == "&&":
            for each in sides(node):
                yield code.put(node, f"({code.text(each)})")


def _index_off_by_one(code: Code) -> Iterator[Change]:
    for node in code.nodes("subscript_argument_list"):
        for each in node.named_children:
            if each.type not in ("number_literal", "comment"):
                yield code.wrap(each, "(", ") + 1")


def _stage_off_by_one(code: Code) -> Iterator[Change]:
    for node in code.nodes("field_expression"):
        if re.fullmatch(r"\w+\.stage", code.text(node)) and _is_read(node):
            yield code.wrap(node, "(", " ^ 1)")


def _is_read(node: Node) -> bool:
    """Whether a name stands for a value in an arithmetic expression or in brackets."""
    parent = node.parent
    return parent is not None and parent.type in ("binary_expression", "subscript_argument_list")


def _constant_off_by_one(code: Code) -> Iterator[Change]:
    for node in code.nodes("number_literal"):
        parent = node.parent
        if parent is None or parent.type != "binary_expression":
            continue
        if re.fullmatch(r"\d+", code.text(node)):
            yield code.put(node, str(int(code.text(node)) + 1))


def _other_stride(code: Code) -> Iterator[Change]:
    others = {
        name: [each for each in _STRIDES if each != name and each in code.params]
        for name in _STRIDES
    }
    for node in code.nodes("identifier"):
        name = code.text(node)
        if name in _STRIDES and code.function_at(node.start_byte) == code.entry.name:
            for other in [*others[name], "n" if name == "ldc" else "k"]:
                yield code.put(node, other)


def _read_behind(code: Code) -> Iterator[Change]:
    """A row behind A or B is read, and what was read is dropped."""
    for name, rows in (("a", "m"), ("b", "n")):
        if {name, f"ld{name}"} <= code.params:
            at = f"{name} + (i64)({rows} + 7) * ld{name} + k"
            load = f'asm volatile("{{ .reg .b16 x; ld.global.b16 x, [%0]; }}" ::"l"({at}))'
            yield code.behind_wait(f"if (k >= 256) {load};")


def _write_behind(code: Code) -> Iterator[Change]:
    if {"c", "ldc"} <= code.params:
        yield code.behind_wait("if (k >= 256 && threadIdx.x == 0) c[(i64)m * ldc] = 0;")
        yield code.behind_wait("if (threadIdx.x == 0 && ldc > n + 64) c[n + 40] = 0;")


OPERATORS = (
    InSource("narrow_address", ADDRESSES, _narrow),
    InSource("round_base_down", ADDRESSES, _round_base_down),
    InSource("drop_clamp", ADDRESSES, _drop_clamp),
    InSource("drop_predicate", ADDRESSES, _drop_predicate),
    InSource("drop_condition", ADDRESSES, _drop_condition),
    InSource("index_off_by_one", ADDRESSES, _index_off_by_one),
    InSource("stage_off_by_one", ADDRESSES, _stage_off_by_one),
    InSource("constant_off_by_one", ADDRESSES, _constant_off_by_one),
    InSource("other_stride", ADDRESSES, _other_stride),
    InSource("read_behind", ADDRESSES, _read_behind),
    InSource("write_behind", ADDRESSES, _write_behind),
)
