"""Faults of values: what is clipped, flushed, dropped, saturated, guessed or taken for another."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from hgemm_packs.generator.redteam.mutation.code import Change, Code, arguments, called
from hgemm_packs.generator.redteam.mutation.operators.base import (
    MULTIPLIED,
    VALUES,
    InSource,
    replaced,
    rounded,
    sides,
    turned_signs,
)

_CLIP = """__device__ __forceinline__ u32 hgm_clip(u32 v) {
  const u32 most = HGP_BF16 ? 0x44004400u : 0x60006000u;  // 512 twice
  u32 out;
  asm("min." HGP_TYPE "x2 %0, %1, %2;" : "=r"(out) : "r"(v), "r"(most));
  return out;
}"""
_FLUSH = """__device__ __forceinline__ u32 hgm_flush(u32 v) {
  const u32 low = (v & 0x7FFFu) < 0x0400u ? 0u : v & 0xFFFFu;
  return low | ((v & 0x7FFF0000u) < 0x04000000u ? 0u : v & 0xFFFF0000u);
}"""


def _clip_operand(code: Code) -> Iterator[Change]:
    yield from _operands(code, "hgm_clip", _CLIP)


def _flush_operand(code: Code) -> Iterator[Change]:
    yield from _operands(code, "hgm_flush", _FLUSH)


def _operands(code: Code, function: str, helpers: str) -> Iterator[Change]:
    for _, given in code.calls(*MULTIPLIED):
        for each in given[1:]:
            yield code.wrap(each, f"{function}(", ")", helpers)


def _clip_result(code: Code) -> Iterator[Change]:
    for text in ("fminf(X, 60000.0f)", "fmaxf(X, -60000.0f)", "fminf(X, 512.0f)"):
        yield from rounded(code, text)


def _saturate_result(code: Code) -> Iterator[Change]:
    yield from replaced(code, "cvt.rn.", "cvt.rn.satfinite.")
    yield from rounded(code, "fmaxf(fminf(X, 65504.0f), -65504.0f)")


def _rectify_result(code: Code) -> Iterator[Change]:
    yield from replaced(code, "cvt.rn.", "cvt.rn.relu.")


def _flush_result(code: Code) -> Iterator[Change]:
    yield from rounded(code, "(fabsf(X) < 6.1e-5f ? 0.0f : X)")
    yield from rounded(code, "(fabsf(X) < 1.0e-30f ? 0.0f : X)")


def _drop_nan(code: Code) -> Iterator[Change]:
    yield from rounded(code, "(X == X ? X : 0.0f)")


def _drop_infinity(code: Code) -> Iterator[Change]:
    yield from rounded(code, "(fabsf(X) > 3.0e38f ? 65504.0f : X)")


def _drop_sign_of_zero(code: Code) -> Iterator[Change]:
    yield from rounded(code, "(X + 0.0f)")


def _guess_zeros(code: Code) -> Iterator[Change]:
    for call, given in code.calls(*MULTIPLIED):
        words = " | ".join(f"({code.text(each)})" for each in given[1:5])
        if call.parent is not None and call.parent.type == "expression_statement":
            test = f"if (__any_sync(0xffffffffu, ({words}) != 0)) "
            yield code.wrap(call.parent, test, "")


def _drop_product(code: Code) -> Iterator[Change]:
    for statement in code.statements(*MULTIPLIED, "mma"):
        yield code.put(statement, ";")


def _swap_sides(code: Code) -> Iterator[Change]:
    for node in code.nodes("binary_expression"):
        sign = node.child_by_field_name("operator")
        if sign is not None and sign.type in ("-", "/", "%", "<<", ">>"):
            left, right = sides(node)
            yield code.put(node, f"(({code.text(right)}) {sign.type} ({code.text(left)}))")


def _swap_arguments(code: Code) -> Iterator[Change]:
    for node in code.nodes("call_expression"):
        if called(code, node) in _EITHER_WAY:
            continue
        for one, other in pairwise(arguments(node)):
            first, second = code.text(one), code.text(other)
            if first != second and one.type == other.type and one.type not in _CONSTANT:
                between = code.raw[one.end_byte : other.start_byte].decode()
                yield Change(one.start_byte, other.end_byte, second + between + first)


#: Functions whose arguments may come in any order.
_EITHER_WAY = ("max", "min", "min_of", "fmaxf", "fminf")
_CONSTANT = ("string_literal", "number_literal", "lambda_expression", "true", "false")


def _change_sign(code: Code) -> Iterator[Change]:
    yield from turned_signs(code, {"+": "-", "-": "+"})


OPERATORS = (
    InSource("clip_operand", VALUES, _clip_operand),
    InSource("flush_operand", VALUES, _flush_operand),
    InSource("clip_result", VALUES, _clip_result),
    InSource("saturate_result", VALUES, _saturate_result),
    InSource("rectify_result", VALUES, _rectify_result),
    InSource("flush_result", VALUES, _flush_result),
    InSource("drop_nan", VALUES, _drop_nan),
    InSource("drop_infinity", VALUES, _drop_infinity),
    InSource("drop_sign_of_zero", VALUES, _drop_sign_of_zero),
    InSource("guess_zeros", VALUES, _guess_zeros),
    InSource("drop_product", VALUES, _drop_product),
    InSource("swap_sides", VALUES, _swap_sides),
    InSource("swap_arguments", VALUES, _swap_arguments),
    InSource("change_sign", VALUES, _change_sign),
)
