"""The data-flow gate: bits of A and B are only moved and multiplied, sums only added, rounded once
and stored, and nothing depends on the values of either.

`check` follows the PTX that a kernel's cubin was made of. Called for finalists, before the binary
gate; needs no GPU and runs nothing of the kernel. What it cannot follow it refuses, and it names
the instruction.
"""

from __future__ import annotations

import copy
import functools
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final

from hgemm_packs.generator.compile import compiler
from hgemm_packs.generator.core import collector
from hgemm_packs.generator.core.spec import Status, Verdict
from hgemm_packs.generator.gates.dataflow import arithmetic, fences, memory, products, waits
from hgemm_packs.generator.gates.dataflow.exceptions import FINISHES, declared, is_of_family
from hgemm_packs.generator.gates.dataflow.flow import Flow
from hgemm_packs.generator.gates.dataflow.program import leftovers, loops, order, unset
from hgemm_packs.generator.gates.dataflow.program.parse import (
    Instruction,
    Kernel,
    Unreadable,
    parse,
    written,
)
from hgemm_packs.generator.gates.dataflow.program.threads import trace
from hgemm_packs.generator.gates.dataflow.program.webs import split
from hgemm_packs.generator.gates.dataflow.values import (
    ADDENDS,
    CLEAN,
    ENDS,
    PROBE,
    WORKSPACE,
    C,
    Value,
)
from hgemm_packs.pack.manifest import GROUPED_LAYOUT, MAPPED, PARAM_LAYOUTS, WITH_WORKSPACE

GATE: Final = "dataflow"
#: Instructions that read memory, whose contents may have grown.
READERS: Final = frozenset(("ld", "ldu", "ldmatrix", "cp", "wgmma", "atom", "red"))
MOST_ROUNDS: Final = 200
MOST_TOLD: Final = 4  # refusals of a verdict
#: A persistent kernel whose record has no cluster runs in clusters of two where it is dependent.
PAIRED: Final = "cluster: a dependent launch is in pairs, of which the record says nothing:"

_STEPS: Final = (arithmetic.step, memory.step, products.step)


def check(fields: Mapping[str, Any], source: str) -> Verdict:
    """Verdict on a built kernel: `fields` are its manifest fields with its `id`, `source` what it
    was compiled from. `detail` names broken rules with their instructions, the first ones alone."""
    try:
        return check_ptx(fields, compiler.ptx_of(source, fields))
    except compiler.BuildError as error:
        return Verdict(GATE, Status.DATAFLOW, f"unreadable: {error}")


@collector.paused
def check_ptx(fields: Mapping[str, Any], ptx: str) -> Verdict:
    """The same of the kernel's PTX."""
    try:
        whole, flow = followed(fields, ptx)
        _kept.flow = ptx, copy.deepcopy(dict(fields)), flow.exceptions, flow, flow.active
    except Unreadable as error:
        return Verdict(GATE, Status.DATAFLOW, str(error))
    kernel = flow.kernel
    found = [flow.refusals[at] for at in sorted(flow.refusals)]
    found += leftovers.faults(whole, FINISHES in flow.exceptions, is_of_family(fields))
    parts = functools.partial(fences.parts, flow)
    late = (*fences.check(flow), *order.check(kernel, flow.threads, parts))
    found += dict.fromkeys(f"{words} '{ins.text[:120]}'" for ins, words in late)
    if max(fields["cluster"]) > 1 and not any(map(_asks_for_cluster, kernel.instructions)):
        found.append("cluster: the record has one, and no instruction asks for it")
    if fields["grid"].get("persistent") and max(fields["cluster"]) == 1:
        paired = filter(_depends_on_cluster, kernel.instructions)
        found += [f"{PAIRED} '{ins.text[:120]}'" for ins in paired]
    evidence = {"instructions": len(kernel.instructions), "refusals": len(found)}
    if not found:
        return Verdict(GATE, Status.OK, "", evidence)
    more = [f"{len(found) - MOST_TOLD} more"] if len(found) > MOST_TOLD else []
    return Verdict(GATE, Status.DATAFLOW, "; ".join([*found[:MOST_TOLD], *more]), evidence)


def _asks_for_cluster(ins: Instruction) -> bool:
    """Whether an instruction does something that only a cluster is for."""
    words = ins.opcode[0] == "mapa" or ins.opcode[:2] == ("barrier", "cluster")
    places = (x.name for x in ins.operands if x.kind == "special")
    return words or "multicast::cluster" in ins.opcode or any("%cluster" in x for x in places)


def _depends_on_cluster(ins: Instruction) -> bool:
    """Whether an instruction finds out which cluster its CTA is in, or where in it."""
    of_cluster = any("cluster" in x.name for x in ins.operands if x.kind == "special")
    return of_cluster or ins.opcode[0] == "getctarank" or _asks_for_cluster(ins)


_kept = threading.local()


def left(fields: Mapping[str, Any], ptx: str) -> Flow:
    """The flow that this gate has left in this thread, for the gate behind it and once, else a new
    one. Raises Unreadable."""
    known, _kept.flow = getattr(_kept, "flow", None), None
    if known is None or known[:3] != (ptx, fields, declared(fields)):
        return followed(fields, ptx)[1]
    flow: Flow = known[3]
    flow.active = known[4]
    return flow


def followed(fields: Mapping[str, Any], ptx: str) -> tuple[Kernel, Flow]:
    """A kernel as it is written, and its flow to the end. Raises Unreadable."""
    try:
        whole = parse(ptx)
        kernel = split(whole)
    except Unreadable as error:
        raise Unreadable(f"unreadable: {error}") from error
    layout = str(fields["param_layout"])
    if len(kernel.params) != len(PARAM_LAYOUTS[layout]):
        raise Unreadable(f"parameters: {len(kernel.params)}, not those of {layout}")
    flow = Flow(
        kernel, roles(kernel, layout), fields, declared(fields), sizes(kernel, layout, fields)
    )
    follow(flow)
    return whole, flow


def roles(kernel: Kernel, layout: str) -> dict[str, str]:
    """What each parameter points to; numbers have no role."""
    names = list(kernel.params)
    found = dict(zip(names, [each.upper() for each in MAPPED[layout]], strict=False))
    rest = names[len(found) :]
    if not found:
        found = dict(zip(names, ("A", "B"), strict=False))
        rest = names[2:]
    if "c" not in MAPPED[layout]:
        found[rest.pop(0)] = C
    if layout in WITH_WORKSPACE:
        found[rest.pop(0)] = WORKSPACE
    sizes = PARAM_LAYOUTS[layout]
    for name, size in zip(names, sizes, strict=True):
        if size == 8 and name in rest:
            found[name] = ENDS if layout == GROUPED_LAYOUT else ADDENDS
    return found


def sizes(kernel: Kernel, layout: str, fields: Mapping[str, Any]) -> dict[str, Value]:
    """M, N and K as the record admits them: the launcher refuses all others."""
    numbers = [
        name for name, size in zip(kernel.params, PARAM_LAYOUTS[layout], strict=True) if size == 4
    ]
    found = {}
    for name, dim in zip(numbers, "mnk", strict=False):
        rule = fields["dims"][dim]
        step = int(rule["multiple_of"])
        zeros = (step & -step).bit_length() - 1
        found[name] = Value(CLEAN, 0, int(rule["min"]), int(rule["max"]), zeros)
    return found


def follow(flow: Flow) -> None:
    """Go over instructions until nothing changes, then once more to see what is refused."""
    instructions = flow.kernel.instructions
    for ins in instructions:
        to = written(ins)
        for operand in (*ins.operands, *([ins.before] if ins.before is not None else ())):
            for name in operand.registers():
                if operand is to:
                    flow.defined_by.setdefault(name, []).append(ins)
                else:
                    for each in flow.kernel.joins.get(name, (name,)):
                        flow.used_by.setdefault(each, []).append(ins.index)
        if ins.opcode[0] in READERS:
            flow.readers.append(ins.index)
    flow.inductions = loops.find(flow.kernel)
    flow.unset = unset.find(flow.kernel)
    flow.threads = trace(flow.kernel, int(flow.fields["block"]))
    needs = [_needs(flow, ins) for ins in instructions]
    # First without what nothing has reached yet, then, where registers are never set, with them.
    settled = _settle(flow, needs) and _settle(flow, [()] * len(instructions))
    flow.reporting = True
    for ins in instructions:
        _step(flow, ins)
    waits.check_asked(flow)
    waits.check_strong(flow)
    waits.check_ahead(flow)
    if not settled:
        flow.refuse(instructions[0], "unreadable: does not settle")


def _needs(flow: Flow, ins: Instruction) -> tuple[tuple[str, ...], ...]:
    """Registers that an instruction reads and others write, each as the writes that reach it; but
    not the sums that it adds to."""
    to = written(ins)
    read = [operand for operand in ins.operands if operand is not to]
    names = {name for operand in read for name in operand.registers()}
    found = (flow.kernel.joins.get(name, (name,)) for name in names)
    return tuple(each for each in found if any(name in flow.defined_by for name in each))


def _settle(flow: Flow, needs: Sequence[tuple[tuple[str, ...], ...]]) -> bool:
    """Apply all instructions whose inputs are known until nothing changes; False where something
    still does."""
    instructions, registers = flow.kernel.instructions, flow.registers
    flow.due = bytearray(b"\1") * len(instructions)
    for _ in range(MOST_ROUNDS):
        at = flow.due.find(1)
        if at < 0:
            return True
        while at >= 0:
            flow.due[at] = 0
            if all(any(name in registers for name in each) for each in needs[at]):
                _step(flow, instructions[at])
            at = flow.due.find(1, at + 1)
    return False


def _step(flow: Flow, ins: Instruction) -> None:
    flow.active = flow.threads.reach[ins.index]
    if not flow.active:
        return  # no thread comes here
    if ins.guard and flow.reporting:
        _guard(flow, ins)
    try:
        known = any(step(flow, ins) for step in _STEPS)
    except (IndexError, KeyError, ValueError):  # operands that no rule expects
        known = False
    if not known:
        flow.refuse(ins, "unknown: an instruction that this gate does not follow")


def _guard(flow: Flow, ins: Instruction) -> None:
    """What decides whether an instruction runs."""
    by = flow.register(ins.guard)
    if not by.kinds & ~CLEAN:
        return
    if not by.kinds & ~(CLEAN | PROBE):
        if ins.opcode[0] == "bra":
            waits.check(flow, ins)
            return
        if ins.opcode[0] == "ld":
            waits.check_load(flow, ins)
            return
    flow.need(ins, by, CLEAN, "branch")
