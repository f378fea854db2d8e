"""Faults of precision: sums in fewer bits, always or where K is deep, and other rounding."""

from __future__ import annotations

from collections.abc import Iterator

from hgemm_packs.generator.redteam.mutation.code import Change, Code
from hgemm_packs.generator.redteam.mutation.operators.base import (
    PRECISION,
    InSource,
    operator_of,
    replaced,
    rounded,
)

_HALF = """__device__ __forceinline__ float hgm_narrow(float v) {
  u16 half;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(v));
  asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"(half));
  return v;
}"""
_CUT = """__device__ __forceinline__ float hgm_narrow(float v) {
  return __uint_as_float(__float_as_uint(v) & 0xFFFFF000u);
}"""
_EACH = """__device__ __forceinline__ void hgm_each(float& v) { v = hgm_narrow(v); }
template <class T, int kCount>
__device__ __forceinline__ void hgm_each(T (&v)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) hgm_each(v[i]);
}"""
#: Names of sums where parts are added.
_SUMS = ("sum", "summand", "parts", "share", "v", "x", "acc", "own")


def _narrow_sum(code: Code, helpers: str) -> Iterator[Change]:
    for node in code.nodes("binary_expression"):
        if operator_of(node) == "+" and _is_sum(code, code.text(node)):
            yield code.wrap(node, "hgm_narrow(", ")", helpers)
    for node in code.nodes("assignment_expression"):
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        if left is None or right is None or operator_of(node) != "+=":
            continue
        if _is_sum(code, code.text(left)):
            to, more = code.text(left), code.text(right)
            yield code.put(node, f"{to} = hgm_narrow({to} + {more})", helpers)


def _is_sum(code: Code, text: str) -> bool:
    name = text.split("[")[0].split(".")[0].split(" ")[0]
    return name in _SUMS and ("[" in text or name in ("sum", "summand"))


def _half(code: Code) -> Iterator[Change]:
    yield from _narrow_sum(code, _HALF)


def _cut(code: Code) -> Iterator[Change]:
    yield from _narrow_sum(code, _CUT)
    yield from rounded(code, "hgm_narrow(X)", _CUT)


def _half_when_deep(code: Code) -> Iterator[Change]:
    """All sums of a thread go through half, from some K on."""
    for statement in code.statements("wgmma_wait", "multiply", "join_chains", "multiply_ring"):
        if code.function_at(statement.start_byte) != code.entry.name:
            continue
        for deep in (1, 1024, 4096):
            for helper in (_HALF, _CUT):
                text = f" if (k >= {deep}) hgm_each(acc);"
                yield code.wrap(statement, "{ ", text + " }", f"{helper}\n{_EACH}")


def _round_otherwise(code: Code) -> Iterator[Change]:
    yield from replaced(code, "cvt.rn.", "cvt.rz.")


def _round_twice(code: Code) -> Iterator[Change]:
    yield from rounded(code, "hgm_narrow(X)", _HALF)


OPERATORS = (
    InSource("half_sum", PRECISION, _half),
    InSource("cut_sum", PRECISION, _cut),
    InSource("half_when_deep", PRECISION, _half_when_deep),
    InSource("round_otherwise", PRECISION, _round_otherwise),
    InSource("round_twice", PRECISION, _round_twice),
)
