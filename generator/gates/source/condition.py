"""The value of an #if: integers, names (worth 0) and the operators of C.

Called by `preprocess` with expanded tokens; `defined` is replaced before.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence

#: Binary operators from the loosest level to the tightest.
_LEVELS: Sequence[Mapping[str, Callable[[int, int], int]]] = (
    {"||": lambda a, b: int(bool(a or b))},
    {"&&": lambda a, b: int(bool(a and b))},
    {"|": operator.or_},
    {"^": operator.xor},
    {"&": operator.and_},
    {"==": operator.eq, "!=": operator.ne},
    {"<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge},
    {"<<": lambda a, b: a << (b & 63), ">>": lambda a, b: a >> (b & 63)},
    {"+": operator.add, "-": operator.sub},
    {"*": operator.mul, "/": operator.floordiv, "%": operator.mod},
)
_UNARY: Mapping[str, Callable[[int], int]] = {
    "!": operator.not_,
    "-": operator.neg,
    "+": operator.pos,
    "~": operator.invert,
}


class ConditionError(Exception):
    """Tokens that are no condition, or one with operators that this module does not know."""


def evaluate(tokens: Sequence[str]) -> bool:
    """Whether the condition holds. Raises ConditionError."""
    rest = list(tokens)[::-1]
    try:
        value = _binary(rest, 0)
    except (IndexError, ArithmeticError, ValueError) as error:
        raise ConditionError("cannot be read") from error
    if rest:
        raise ConditionError(f"cannot read {rest[-1]!r}")
    return bool(value)


def _binary(rest: list[str], level: int) -> int:
    if level == len(_LEVELS):
        return _unary(rest)
    value = _binary(rest, level + 1)
    while rest and rest[-1] in _LEVELS[level]:
        apply = _LEVELS[level][rest.pop()]
        value = int(apply(value, _binary(rest, level + 1)))
    return value


def _unary(rest: list[str]) -> int:
    word = rest.pop()
    if word in _UNARY:
        return int(_UNARY[word](_unary(rest)))
    if word == "(":
        value = _binary(rest, 0)
        if rest.pop() != ")":
            raise ConditionError("no closing )")
        return value
    if re.fullmatch(r"[A-Za-z_]\w*", word):
        return int(word == "true")
    number = re.fullmatch(r"(0[xX][\da-fA-F]+|\d+)[uUlL]*", word)
    if number is None:
        raise ConditionError(f"cannot read {word!r}")
    octal = re.fullmatch(r"0\d+", number[1])
    return int(number[1], 8 if octal else 0)
