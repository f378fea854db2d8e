"""Opcodes that the machine has numbers of, matched whole: a modifier or a type that is not here may
make another number; and how wide an access is.

Asked by `slices`, `machine` and watchers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from math import prod
from typing import Final

from hgemm_packs.generator.gates.dataflow.program.parse import Instruction

_WHOLE: Final = "[su](16|32|64)"
_BITS: Final = "b(16|32|64)"
_NUMBER: Final = "[bsu](16|32|64)"

#: opcode -> the words that may follow it.
_FORMS: Final[Mapping[str, str]] = {
    "mov": f"{_NUMBER}|f32|pred",
    "ld": r"param\.([bsu](32|64)|f32)|const\.[bsu](16|32|64)",
    "cvta": r"((to\.)?(global|shared|local|const|param)\.)?u64",
    "mapa": r"shared::cluster\.u(32|64)",
    "elect": "sync",
    "shfl": r"sync\.idx\.b32",
    "add": rf"{_WHOLE}|((rn|rz)\.)?f32",
    "sub": rf"{_WHOLE}|(rn\.)?f32",
    "mul": rf"(lo|hi)\.{_WHOLE}|wide\.[su](16|32)|(rn\.)?f32",
    "mad": rf"lo\.{_WHOLE}|wide\.[su](16|32)",
    "fma": r"rn\.f32",
    "rcp": r"(rn|approx(\.ftz)?)\.f32",
    "shl": _BITS,
    "shr": _NUMBER,
    "div": rf"{_WHOLE}|rn\.f32",
    "rem": _WHOLE,
    "and": f"{_BITS}|pred",
    "or": f"{_BITS}|pred",
    "xor": f"{_BITS}|pred",
    "not": f"{_BITS}|pred",
    "neg": r"s(16|32|64)|f32",
    "abs": r"s(16|32|64)|f32",
    "min": _WHOLE,
    "max": _WHOLE,
    "setp": rf"(eq|ne)\.{_NUMBER}|(lt|le|gt|ge)\.{_WHOLE}|(lo|ls|hi|hs)\.u(16|32|64)"
    r"|(eq|lt|le|gt|ge)\.f32",
    "selp": f"{_NUMBER}|f32",
    "cvt": rf"{_WHOLE}\.{_WHOLE}|rn\.f32\.{_WHOLE}|(rni|rzi|rmi|rpi)\.[su](16|32)\.f32",
    "bfi": "b(32|64)",
    "bfe": "[su](32|64)",
}
_PATTERNS: Final = {name: re.compile(form) for name, form in _FORMS.items()}


@cache
def is_known(opcode: tuple[str, ...]) -> bool:
    """Whether the machine knows an instruction with all its modifiers and its type."""
    form = _PATTERNS.get(opcode[0])
    return form is not None and form.fullmatch(".".join(opcode[1:])) is not None


def access_width(ins: Instruction) -> int:
    """The bytes that a thread reads or writes in one access."""
    bits = int("".join(each for each in ins.opcode[-1] if each.isdigit()))
    return bits // 8 * prod(int(word[1:]) for word in ins.opcode if word in ("v2", "v4", "v8"))
