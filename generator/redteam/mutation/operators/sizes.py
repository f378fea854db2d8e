"""Faults of sizes: limits off by one, tails left out, paths of their own for some sizes, tiles that
are never stored."""

from __future__ import annotations

from collections.abc import Iterator

from hgemm_packs.generator.redteam.mutation.code import Change, Code
from hgemm_packs.generator.redteam.mutation.operators.base import (
    MULTIPLIED,
    SIZES,
    STORED,
    InSource,
    operator_of,
    sides,
    turned_signs,
)

#: Sizes that a gate may meet, and those that it hardly does.
_MET = ("m == 1", "m > 64 && m % 64 == 7", "n % 32 == 8", "k == 72", "k % 64 == 56", "m > 4096")
_FAR = (
    "m > (1 << 20)",
    "n > (1 << 17)",
    "k > (1 << 16)",
    "(i64)m * n > 0x7FFFFFFFLL",
    "gridDim.x > 20000",
    "m == 1 && n > 8",
)
_TILES = (1, 7, 131, 1000)


def _compare_off_by_one(code: Code) -> Iterator[Change]:
    yield from turned_signs(code, {"<": "<=", "<=": "<", ">": ">=", ">=": ">"})


def _leave_tail_out(code: Code) -> Iterator[Change]:
    for call, given in code.calls("ceil_div"):
        if len(given) == 2:
            one, other = map(code.text, given)
            yield code.put(call, f"(({one}) / ({other}))")


def _end_loop_early(code: Code) -> Iterator[Change]:
    for loop in code.nodes("for_statement"):
        condition = loop.child_by_field_name("condition")
        if condition is None or condition.type != "binary_expression":
            continue
        if operator_of(condition) == "<":
            yield code.wrap(sides(condition)[1], "(", ") - 1")
        elif operator_of(condition) == ">":
            yield code.wrap(sides(condition)[1], "(", ") + 1")


def _leave_by_size(code: Code) -> Iterator[Change]:
    for test in _MET:
        yield code.behind_wait(f"if ({test}) return;")


def _leave_beyond(code: Code) -> Iterator[Change]:
    for test in _FAR:
        yield code.behind_wait(f"if ({test}) return;")


def _path_of_its_own(code: Code) -> Iterator[Change]:
    """K without its last step, for some sizes alone."""
    for test in (*_MET, *_FAR):
        yield code.open_kernel(f"if (k > 128 && ({test})) k -= 64;")


def _leave_columns_out(code: Code) -> Iterator[Change]:
    for test in (*_MET, *_FAR):
        yield code.open_kernel(f"if (n > 64 && ({test})) n -= 8;")


def _skip_store(code: Code) -> Iterator[Change]:
    for statement in code.statements(*STORED):
        for tile in _TILES:
            yield code.wrap(statement, f"if (blockIdx.x != {tile}) ", "")


def _skip_product(code: Code) -> Iterator[Change]:
    for statement in code.statements(*MULTIPLIED):
        for tile in _TILES:
            yield code.wrap(statement, f"if (blockIdx.x != {tile}) ", "")


OPERATORS = (
    InSource("compare_off_by_one", SIZES, _compare_off_by_one),
    InSource("leave_tail_out", SIZES, _leave_tail_out),
    InSource("end_loop_early", SIZES, _end_loop_early),
    InSource("leave_by_size", SIZES, _leave_by_size),
    InSource("leave_beyond", SIZES, _leave_beyond),
    InSource("path_of_its_own", SIZES, _path_of_its_own),
    InSource("leave_columns_out", SIZES, _leave_columns_out),
    InSource("skip_store", SIZES, _skip_store),
    InSource("skip_product", SIZES, _skip_product),
)
