"""What single families may do beyond the rules, each by name and with its reason.

A family declares its exceptions (`Family.exceptions`); an epilogue that is more than an addition
brings the one called "finishes". Kernels of no family get none. The list is reviewed like code:
docs/decisions/generator.md has the reasons at length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from hgemm_packs.generator.families import BATCHED, FAMILIES, GROUPED, family
from hgemm_packs.generator.gates.dataflow.flow import Flow
from hgemm_packs.generator.gates.dataflow.program.parse import Instruction
from hgemm_packs.generator.gates.dataflow.values import (
    FINISHED,
    MIXED,
    SUM,
    TRACKED,
    VERDICT,
    WIDE_ADDEND,
    Value,
)

FINISHES: Final = "finishes"  # a sum goes through the function of a declared epilogue
TURNS: Final = "turns_residual"  # a residual and rounded sums pass through one staging buffer
LISTS: Final = "lists_groups"  # a list of groups stands behind the ring of operands
ALIGNS: Final = "asks_alignment"  # pieces begin where an address of 2 bytes lies in a word
SHIFTS: Final = "shifts_rows"  # rows of operands are shifted in place, in the ring

#: Epilogues whose function of a sum is more than an addition; each is one of common/finish.cuh.
FUNCTIONS: Final = frozenset(
    ("bias_relu", "bias_gelu", "bias_gelu_tanh", "bias_silu", "gated_silu")
)

#: Instructions of those functions, exponentials and a quotient among them.
_FUNCTION: Final = frozenset(
    [
        "abs",
        "add",
        "and",
        "copysign",
        "cvt",
        "div",
        "ex2",
        "fma",
        "mul",
        "neg",
        "or",
        "rcp",
        "selp",
        "setp",
        "shl",
        "sub",
    ]
)


_FINISHABLE: Final = SUM | WIDE_ADDEND | FINISHED | VERDICT


def finish(flow: Flow, ins: Instruction, inputs: Sequence[Value]) -> bool:
    """Apply an instruction of a declared epilogue to sums; False where it is none. Nothing adds a
    zero: that changes the sign of another zero and no other number."""
    if FINISHES not in flow.exceptions or ins.opcode[0] not in _FUNCTION:
        return False
    if _adds_zero(ins):
        return False
    for value in inputs:
        others = value.kinds & TRACKED & ~_FINISHABLE
        if others and not (value.kinds & MIXED and value.kinds & SUM):
            return False
    made = VERDICT if ins.opcode[0] == "setp" else FINISHED
    flow.write(ins.operands[0], Value(made))
    return True


def _adds_zero(ins: Instruction) -> bool:
    terms = {"add": ins.operands[1:], "fma": ins.operands[3:]}.get(ins.opcode[0], ())
    return any(each.kind == "number" and each.value == 0 for each in terms)


def is_of_family(fields: Mapping[str, Any]) -> bool:
    """Whether a kernel with these manifest fields is of a family of ours."""
    return str(fields.get("family")) in FAMILIES | GROUPED | BATCHED


def declared(fields: Mapping[str, Any]) -> frozenset[str]:
    """The exceptions of a kernel with these manifest fields: those of its family, where it has
    one."""
    if not is_of_family(fields):
        return frozenset()
    name = str(fields["family"])
    epilogue = fields.get("epilogue")
    named = set(family(name).exceptions) - (set() if epilogue == "residual" else {TURNS})
    return frozenset(named | ({FINISHES} if epilogue in FUNCTIONS else set()))
