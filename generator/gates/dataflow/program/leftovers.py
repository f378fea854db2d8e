"""Rules for what a launch finds: it begins with nothing and leaves nothing behind.

Called by `gate` on PTX as it is written, for each place where something of another launch may be:
registers that nothing has set, arrivals and phases of barriers, lines of L2 that stay. Numbers in
shared memory are refused by `memory`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Set
from typing import Final

from hgemm_packs.generator.gates.dataflow.program.parse import (
    Instruction,
    Kernel,
    Operand,
    inputs,
    written,
)
from hgemm_packs.generator.gates.dataflow.program.webs import Block, blocks, without

#: What L2 may be told of a line: to let it go first, or nothing; and how much to fetch.
_OF_L2: Final = re.compile(r"L2(::(evict_first|evict_unchanged|cache_hint|64B|128B|256B))?")
_FLOAT: Final = re.compile(r"%fd?\d")
_POLICY: Final = ("createpolicy", "fractional")
_WAITS: Final = frozenset(("try_wait", "test_wait"))
#: What may stand in a loop that waits for a barrier.
_IN_A_WAIT: Final = frozenset(("mbarrier", "nanosleep", "bra", "mov", "selp", "setp", "not", "and"))


def faults(kernel: Kernel, finishes: bool = False, family: bool = True) -> list[str]:
    """Rules that a kernel breaks, in the order of its instructions. One that `finishes` its sums by
    a function looks at their bits; one of a `family` may leave sums unset."""
    found: dict[int, str] = {}
    users = _users(kernel)
    rules = (
        _unset(kernel, finishes, family),
        _barriers(kernel, users),
        _lines_of_l2(kernel),
        _partners(kernel),
        _stale(kernel),
    )
    for rule in rules:
        for ins, words in rule:
            found.setdefault(ins.index, f"{words} in '{ins.text[:120]}'")
    return [found[at] for at in sorted(found)]


def _users(kernel: Kernel) -> dict[str, list[Instruction]]:
    users: dict[str, list[Instruction]] = {}
    for ins in kernel.instructions:
        for name in inputs(ins):
            users.setdefault(name, []).append(ins)
    return users


def _unset(kernel: Kernel, finishes: bool, family: bool) -> Iterator[tuple[Instruction, str]]:
    """Reads of registers that some path from the start leaves as another kernel left them.

    Sums of families may be read so, for a K of nothing sets none: they are added, rounded and
    stored, and what is made of an unset sum is as unset. Of a stranger nobody knows which path
    leaves them so. The sums of wgmma count as set.
    """
    graph = blocks(kernel)
    sums = {x for ins in kernel.instructions if ins.opcode[0] == "wgmma" for x in _sets(ins)}
    set_before: dict[int, frozenset[str]] = {0: frozenset(sums)}
    due = [0] if graph else []
    while due:
        at = due.pop()
        leaves = set(set_before[at])
        for ins in _of(kernel, graph[at]):
            _step(ins, leaves)
        for each in graph[at].next:
            known = set_before.get(each)
            now = frozenset(leaves) if known is None else known & leaves
            if now != known:
                set_before[each] = now
                due.append(each)
    for at, known in set_before.items():
        here = set(known)
        for ins in _of(kernel, graph[at]):
            if not _step(ins, here, finishes, family):
                yield ins, "register: read before it is set"


def _of(kernel: Kernel, block: Block) -> list[Instruction]:
    return kernel.instructions[block.first : block.end]


def _sets(ins: Instruction) -> tuple[str, ...]:
    """Registers that an instruction writes in any case."""
    to = written(ins)
    return to.registers() if to is not None and not ins.guard else ()


def _step(ins: Instruction, here: set[str], finishes: bool = False, family: bool = True) -> bool:
    """Note in `here` what an instruction sets; False where it reads what is not set and more than
    a sum, or makes something else than a sum of it."""
    missing = [name for name in inputs(ins) if name not in here]
    sums = family and all(_FLOAT.match(name) for name in missing)
    goes_on = ins.opcode[0] not in ("setp", "set", "slct", "testp")
    for name in _sets(ins):
        is_sum = _FLOAT.match(name) is not None
        if missing and is_sum:
            here.discard(name)
        else:
            here.add(name)
        goes_on = goes_on and (is_sum or ins.opcode[:2] == ("cvt", "rn"))
    return not missing or (sums and (goes_on or finishes))


def _barriers(
    kernel: Kernel, users: Mapping[str, list[Instruction]]
) -> Iterator[tuple[Instruction, str]]:
    """What a barrier says of arrivals may decide how long a thread waits, and nothing else."""
    waits = {
        name
        for ins in kernel.instructions
        if ins.opcode[0] == "mbarrier" and _WAITS & set(ins.opcode)
        for name in ins.operands[0].registers()
    }
    for ins in kernel.instructions:
        if ins.opcode[0] != "mbarrier":
            continue
        if "pending_count" in ins.opcode:
            yield ins, "barrier: arrivals are counted"
        to = written(ins)
        for name in to.registers() if to is not None else ():
            for user in users.get(name, ()):
                if _WAITS & set(ins.opcode):
                    if not _repeats(kernel, user, ins, waits):
                        yield user, "barrier: whether it is complete decides more than a wait"
                elif not _WAITS & set(user.opcode):
                    yield user, "barrier: its state is read"


def _repeats(kernel: Kernel, user: Instruction, wait: Instruction, waits: Set[str]) -> bool:
    """Whether a branch goes back to a wait that is not over, or past one that goes back to look
    again: however often that is, nothing goes on before. `waits`: results of all waits."""
    target = kernel.labels.get(user.operands[0].name) if user.opcode[0] == "bra" else None
    if target is None or user.index <= wait.index:
        return False
    first, last = (target, user.index) if target <= wait.index else (wait.index, target - 1)
    if user.negated != (target <= wait.index):
        return False
    end = kernel.instructions[last]
    again = kernel.labels.get(end.operands[0].name) if end.opcode[0] == "bra" else None
    if again is None or again > last or (end.guard and not end.negated):
        return False
    between = kernel.instructions[first : last + 1]
    return all(
        each.opcode[0] in _IN_A_WAIT and (each.opcode[0] != "bra" or each.guard in {"", *waits})
        for each in between
    )


def _lines_of_l2(kernel: Kernel) -> Iterator[tuple[Instruction, str]]:
    """Lines that stay in L2 for longer than others, that are dropped unwritten, or of which nobody
    knows: they would slow, or spoil, what runs behind the kernel."""
    policies = {
        name
        for ins in kernel.instructions
        if ins.opcode[:2] == _POLICY
        for name in ins.operands[0].registers()
    }
    writes: dict[str, list[Instruction]] = {}
    for ins in kernel.instructions:
        to = written(ins)
        for name in to.registers() if to is not None else ():
            writes.setdefault(name, []).append(ins)
    for ins in kernel.instructions:
        name, words = ins.opcode[0], ins.opcode
        others = [word for word in words if word[:2] == "L2" and not _OF_L2.fullmatch(word)]
        if name in ("discard", "applypriority") or others:
            yield ins, f"L2: {others[0] if others else name}"
        elif name == "createpolicy" and words[:2] != _POLICY:
            yield ins, "L2: a policy by addresses"
        elif "L2::cache_hint" in words and not _is_made(ins.operands[-1], policies, writes):
            yield ins, "L2: a policy that no createpolicy made"


def _is_made(
    policy: Operand, policies: set[str], writes: Mapping[str, list[Instruction]], depth: int = 8
) -> bool:
    """Whether every write of a register is a policy, or a copy of one."""
    if policy.kind != "register" or not depth:
        return False
    made = writes.get(policy.name, [])
    return bool(made) and all(
        ins.opcode[0] == "createpolicy"
        or (ins.opcode[0] == "mov" and _is_made(ins.operands[1], policies, writes, depth - 1))
        for ins in made
    )


#: What loads from another CTA's shared memory, or stores to it.
_REMOTE: Final = frozenset(("ld", "st", "atom", "red"))


def _goes_out(ins: Instruction) -> bool:
    """Whether another CTA's shared memory or barriers get something that nobody here waits for, by
    a copy of this CTA's shared memory among others: the engine may still read that."""
    told = ins.opcode[:2] == ("mbarrier", "arrive") and _IN_CLUSTER in ins.opcode
    sent = ins.opcode[:3] == ("cp", "async", "bulk") and ins.opcode[3:5] == _FROM_HERE
    return told or sent or "multicast::cluster" in ins.opcode


def _partners(kernel: Kernel) -> Iterator[tuple[Instruction, str]]:
    """Accesses to other CTAs of the cluster, which may not have begun before all have met, and may
    have ended where nobody waits for a load."""
    remote = [
        ins
        for ins in kernel.instructions
        if (ins.opcode[0] in _REMOTE and _IN_CLUSTER in ins.opcode) or _goes_out(ins)
    ]
    if not remote:
        return
    graph = blocks(kernel)
    met = _certain(kernel, graph, ("barrier", "cluster", "wait"))
    for ins in remote:
        if ins.index not in met:
            yield ins, "cluster: another CTA that may not have begun"
        elif (ins.opcode[0] == "ld" or _goes_out(ins)) and _ends_alone(kernel, graph, ins):
            yield ins, "cluster: another CTA that may have ended"


_IN_CLUSTER: Final = "shared::cluster"
_FROM_HERE: Final = (_IN_CLUSTER, "shared::cta")


def _stale(kernel: Kernel) -> Iterator[tuple[Instruction, str]]:
    """Reads of shared memory ahead of which, on some path, the thread has neither stored there nor
    met or waited for others: what they find is of another launch."""
    reached = without(kernel, blocks(kernel), 0, _may_fill)
    for ins in kernel.instructions:
        reads = ins.opcode[0] in ("ld", "ldmatrix", "atom") and _SHARED & set(ins.opcode)
        if reads and ins.index in reached:
            yield ins, "shared: read before anything of this launch can be there"


def _may_fill(ins: Instruction) -> bool:
    """Whether shared memory may hold something of this launch behind an instruction."""
    if ins.opcode[0] in ("st", "stmatrix"):
        return bool(_SHARED & set(ins.opcode))
    waits = ins.opcode[0] in ("mbarrier", "cp") and not _FILLED.isdisjoint(ins.opcode)
    return waits or ins.opcode[0] in ("bar", "barrier")


_SHARED: Final = frozenset(("shared", "shared::cta", "shared::cluster"))
_FILLED: Final = _WAITS | {"wait_group", "wait_all"}


def _certain(kernel: Kernel, graph: Mapping[int, Block], barrier: tuple[str, ...]) -> set[int]:
    """Instructions before which a barrier stands on every path from the start."""
    reached = without(kernel, graph, 0, functools.partial(_is, barrier))
    return {ins.index for ins in kernel.instructions if ins.index not in reached}


def _ends_alone(kernel: Kernel, graph: Mapping[int, Block], load: Instruction) -> bool:
    """Whether a path leads from a load to the end without a word to the others, or without waiting
    for theirs behind it: what a CTA does to others they do to it."""
    told = functools.partial(_is, ("barrier", "cluster", "arrive"))
    heard = functools.partial(_is, ("barrier", "cluster", "wait"))
    reached = without(kernel, graph, load.index, told)
    for ins in kernel.instructions:
        if ins.index in reached and told(ins):
            reached = reached | without(kernel, graph, ins.index, heard)
    ends = {ins.index for ins in kernel.instructions if ins.opcode[0] in ("ret", "exit")}
    return bool(reached & ends)


def _is(words: tuple[str, ...], ins: Instruction) -> bool:
    """Whether an instruction that no thread leaves out begins with these words."""
    return ins.opcode[: len(words)] == words and not ins.guard
