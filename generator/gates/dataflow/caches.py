"""Rules for what stays in L2: no kernel keeps lines there for good, for those of others go instead.

Called by `gate` for every instruction that it follows.
"""

from __future__ import annotations

from typing import Final

from hgemm_packs.generator.gates.dataflow.flow import Flow
from hgemm_packs.generator.gates.dataflow.program.parse import Instruction, Operand

KEPT: Final = "L2::evict_last"
HINTED: Final = "L2::cache_hint"


def check(flow: Flow, ins: Instruction) -> None:
    """Refuse a policy that keeps lines, and one that createpolicy has not made: a constant may be
    any."""
    if KEPT in ins.opcode or ins.opcode[:2] == ("createpolicy", "cvt"):
        flow.refuse(ins, "cache: lines of L2 are kept for good")
    if HINTED in ins.opcode and not _is_made(flow, ins.operands[-1], frozenset()):
        flow.refuse(ins, "cache: a policy that createpolicy has not made")


def _is_made(flow: Flow, policy: Operand, seen: frozenset[str]) -> bool:
    """Whether each write that reaches a register is one of createpolicy, or a copy of such."""
    names = [each for name in policy.registers() for each in flow.kernel.joins.get(name, (name,))]
    if not names:
        return False
    for name in set(names) - seen:
        makers = flow.defined_by.get(name, [])
        copied = (m for m in makers if m.opcode[0] != "createpolicy")
        further = seen.union(names)
        if not makers or not all(
            m.opcode[0] == "mov" and _is_made(flow, m.operands[1], further) for m in copied
        ):
            return False
    return True
