"""Rules for fences between what threads store in shared memory and what reads it by another way.

wgmma and bulk copies read shared memory through the async proxy, threads and cp.async write it
through the generic one: `fence.proxy.async` has to stand between (PTX ISA, memory consistency
model). Without one a kernel is right nearly always, so that no run of it tells. The fence may stand
behind the stores, before other threads are told of them, or before the reads, behind what they were
told by. And where a thread multiplies what it has helped to store, the others' part counts too: it
has met them since. Called by `dataflow.gate` once it has followed a kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from hgemm_packs.generator.gates.dataflow import bits, memory
from hgemm_packs.generator.gates.dataflow.flow import ANY_SHARED, Flow, Place
from hgemm_packs.generator.gates.dataflow.program.parse import Instruction, Operand
from hgemm_packs.generator.gates.dataflow.program.webs import Block, blocks
from hgemm_packs.generator.gates.dataflow.values import OPERAND, TRACKED

UNFENCED: Final = "fence: no fence.proxy.async behind '{}' before"
UNMET: Final = "fence: no meeting of those that store behind '{}' before"
UNSEEN: Final = "fence: the copy engine may not see the barrier yet, which is told of by"
_SHARED: Final = ("shared", "shared::cta", "shared::cluster")
_OTHERS: Final = frozenset(("global", "param", "const", "local"))
#: What tells other threads that something is done, and what a thread is told by.
_TELLS: Final = frozenset(("bar", "barrier", "mbarrier"))
_TOLD_BY: Final = frozenset(("try_wait", "test_wait", "wait", "sync", "red"))


class Write(NamedTuple):
    """A store of threads in shared memory. `copied`: by cp.async, done once it was waited for."""

    ins: Instruction
    kinds: int
    parts: Sequence[Place]
    copied: bool


class Read(NamedTuple):
    """A read of the async proxy: of operands by wgmma, or a bulk copy's of anything else."""

    ins: Instruction
    parts: Sequence[Place]
    of_operands: bool

    def meets(self, write: Write) -> bool:
        """Whether a write may be of what is read. Where a descriptor points is not followed further
        than to the array, so the kinds tell operands from what else is staged there. Zeros may be
        either, numbers are neither."""
        kinds = write.kinds & TRACKED
        if write.kinds and (not kinds or bool(kinds & OPERAND) != self.of_operands):
            return False
        return any(one.meets(other) for one in self.parts for other in write.parts)


@dataclass(slots=True)
class _State:
    """Of a path up to some instruction, a bit for each write: `dirty`, behind which no fence
    stands; `waited`, copies that were waited for on all ways; `told`, that other threads were told
    of while dirty; `alone`, behind which no other thread was met. `unfenced`: no fence stands
    behind what this thread was told by; `init`: the copy engine may not see a barrier."""

    dirty: int = 0
    waited: int = -1
    told: int = 0
    alone: int = 0
    unfenced: bool = True
    init: bool = False

    def joined(self, other: _State) -> _State:
        return _State(
            self.dirty | other.dirty,
            self.waited & other.waited,
            self.told | other.told,
            self.alone | other.alone,
            self.unfenced or other.unfenced,
            self.init or other.init,
        )


@dataclass(slots=True)
class _Case:
    flow: Flow
    writes: list[Write] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    bit: dict[int, int] = field(default_factory=dict)  # by instruction
    copied: int = 0
    counts: bool = False  # whether a copy or a store tells a barrier of its bytes


def check(flow: Flow) -> Iterator[tuple[Instruction, str]]:
    """Reads that no fence parts from what threads wrote, each with the rule that it breaks."""
    case = _collect(flow)
    if not case.reads and not case.counts:
        return
    graph = blocks(flow.kernel)
    enters: dict[int, _State] = {0: _State()} if graph else {}
    due = [0] if graph else []
    while due:
        first = due.pop()
        leaves = _pass(case, graph[first], enters[first], None)
        for each in graph[first].next:
            known = enters.get(each)
            now = leaves if known is None else known.joined(leaves)
            if now != known:
                enters[each] = now
                due.append(each)
    told = 0
    for first in enters:
        told |= _pass(case, graph[first], enters[first], None).told
    found: dict[int, str] = {}
    for first, state in enters.items():
        _pass(case, graph[first], state, found, told)
    for at in sorted(found):
        yield flow.kernel.instructions[at], found[at]


def parts(flow: Flow, ins: Instruction, address: Operand) -> Sequence[Place]:
    """The parts of shared memory that an address of 16 bytes may name."""
    flow.active = flow.threads.reach[ins.index]
    return memory.places(flow, ins, address, "shared", 16)


def _collect(flow: Flow) -> _Case:
    case = _Case(flow)
    for ins in flow.kernel.instructions:
        flow.active = flow.threads.reach[ins.index]
        if not flow.active:
            continue
        case.counts = case.counts or any(word.endswith("complete_tx::bytes") for word in ins.opcode)
        write = _write_of(flow, ins)
        if write is not None:
            case.bit[ins.index] = 1 << len(case.writes)
            case.copied |= case.bit[ins.index] if write.copied else 0
            case.writes.append(write)
        case.reads += _reads_of(flow, ins)
    return case


def _write_of(flow: Flow, ins: Instruction) -> Write | None:
    """What an instruction stores in shared memory through the generic proxy."""
    name, words = ins.opcode[0], ins.opcode
    if name in ("st", "stmatrix") and not _OTHERS & set(words) and "async" not in words:
        size = 16 if name == "stmatrix" else _bytes(ins)
        parts = _shared_parts(flow, ins, size)
        return Write(ins, _kinds(flow, ins.operands[1]), parts, False) if parts else None
    if name == "cp" and words[:2] == ("cp", "async") and words[2] in ("ca", "cg"):
        parts = memory.places(flow, ins, ins.operands[0], "shared", 16)
        source = memory.places(flow, ins, ins.operands[1], "global", None)
        return Write(ins, memory.holds(flow, ins, source), parts, True)
    return None


def _shared_parts(flow: Flow, ins: Instruction, size: int) -> Sequence[Place]:
    """Where a store goes in shared memory; one that names no state space may go elsewhere."""
    space = "shared" if set(_SHARED) & set(ins.opcode) else ""
    symbols = flow.kernel.symbols
    every = memory.places(flow, ins, ins.operands[0], space, size)
    return [x for x in every if x.name == ANY_SHARED or symbols.get(x.name) == "shared"]


def _bytes(ins: Instruction) -> int:
    source = ins.operands[1]
    count = len(source.parts) if source.kind == "vector" else 1
    return count * (bits.width(ins.opcode) // 8 or 8)


def _kinds(flow: Flow, source: Operand) -> int:
    if source.kind != "vector":
        return flow.value(source).kinds
    kinds = 0
    for part in source.parts:
        kinds |= flow.value(part).kinds
    return kinds


def _reads_of(flow: Flow, ins: Instruction) -> Iterator[Read]:
    """What an instruction reads of shared memory through the async proxy."""
    words = ins.opcode
    if words[:2] == ("wgmma", "mma_async"):
        for operand in ins.operands[1:3]:
            if operand.kind != "vector":
                address = Operand("address", parts=(operand,))
                yield Read(ins, memory.places(flow, ins, address, "shared", None), True)
    elif words[:3] == ("cp", "async", "bulk"):
        spaces = [word for word in words if word == "global" or word in _SHARED]
        if len(spaces) == 2 and spaces[1] in _SHARED:
            yield Read(ins, memory.tensor_places(flow, ins, ins.operands[1], "shared", None), False)


def _pass(
    case: _Case, block: Block, state: _State, found: dict[int, str] | None, told: int = 0
) -> _State:
    """The state behind a block; `found` gets its faults, where `told` has what any thread was told
    of while dirty."""
    now = replace(state)
    reads = _by_instruction(case) if found is not None else {}
    for ins in case.flow.kernel.instructions[block.first : block.end]:
        if not case.flow.threads.reach[ins.index]:
            continue
        if found is not None:
            for read in reads.get(ins.index, ()):
                late = _late(case, read, now.dirty | (told if now.unfenced else 0))
                if late is not None:
                    found.setdefault(ins.index, UNFENCED.format(late.ins.text[:60]))
                late = _late(case, read, now.alone) if read.of_operands else None
                if late is not None:
                    found.setdefault(ins.index, UNMET.format(late.ins.text[:60]))
            if now.init and case.counts and _tells(ins):
                found.setdefault(ins.index, UNSEEN)
        _step(case, ins, now)
    return now


def _late(case: _Case, read: Read, mask: int) -> Write | None:
    """The first write of a mask that may be of what is read."""
    return next((x for x in case.writes if mask & case.bit[x.ins.index] and read.meets(x)), None)


def _by_instruction(case: _Case) -> Mapping[int, list[Read]]:
    found: dict[int, list[Read]] = {}
    for read in case.reads:
        found.setdefault(read.ins.index, []).append(read)
    return found


def _tells(ins: Instruction) -> bool:
    """Whether other threads, or the copy engine, may go on by what stands before an instruction."""
    words = ins.opcode
    if words[0] not in _TELLS or words[:2] == ("bar", "warp"):
        return words[:3] == ("cp", "async", "bulk") and "mbarrier::complete_tx::bytes" in words
    return "wait" not in words and not {"init", "try_wait", "test_wait", "inval"} & set(words)


def _step(case: _Case, ins: Instruction, now: _State) -> None:
    words = ins.opcode
    bit = case.bit.get(ins.index, 0)
    if bit:
        now.dirty |= bit
        now.alone |= bit
        now.waited &= ~bit
    elif words[0] == "fence" and not ins.guard:
        if words[1:3] == ("proxy", "async") and "global" not in words:
            now.dirty &= case.copied & ~now.waited
            now.unfenced = now.init = False
        elif words[1] == "mbarrier_init":
            now.init = False
    elif words in (("cp", "async", "wait_group"), ("cp", "async", "wait_all")):
        now.waited = -1
    elif words[:3] == ("cp", "async", "mbarrier"):
        now.told |= now.dirty & case.copied
    elif words[:2] == ("mbarrier", "init"):
        now.init = True
    elif words[0] in _TELLS and words[:2] != ("bar", "warp"):
        if _tells(ins):
            now.told |= now.dirty & ~(case.copied & ~now.waited)
        if _TOLD_BY & set(words):
            now.unfenced = True
            now.alone &= case.copied & ~now.waited
