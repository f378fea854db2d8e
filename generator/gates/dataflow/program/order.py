"""Rules for what goes on behind a thread's back: copies, bulk stores, products of wgmma and words
to other CTAs have to be over before something else begins.

Called by `dataflow.gate` once it has followed a kernel. The tools that see races do not see the
copy engine, the tensor cores or other CTAs, and a kernel that does not wait is right nearly always.
Each path is that of one thread: a branch that its number decides is taken as it takes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from hgemm_packs.generator.gates.dataflow.program.parse import Instruction, Kernel, Operand
from hgemm_packs.generator.gates.dataflow.program.threads import Threads
from hgemm_packs.generator.gates.dataflow.program.webs import Block, blocks

STORED: Final = "store: the CTA may end before it is done:"
STAGED: Final = "store: a bulk store may still read what is staged over by"
UNMET: Final = "store: other warps may still stage what is stored by"
UNFILLED: Final = "product: some of the threads that multiply together do not wait:"
UNREAD: Final = "product: may still read the stage that is given back by"
VACANT: Final = "copies: none that is not done already is waited for by"
UNTOLD: Final = "copies: on some path no barrier is told of them before"
RELAXED: Final = "cluster: no release behind what was stored before"
GROUP: Final = 128  # threads of one product of wgmma
_ENDS_GROUP: Final = ("cp", "async", "commit_group")
_SHARED: Final = ("shared", "shared::cta", "shared::cluster")
#: What orders stores of a thread before what others do behind a barrier of the cluster.
_ORDERS: Final = frozenset(("fence", "membar"))

Test = Callable[[Instruction], bool]


class Part(Protocol):
    """A part of memory."""

    def meets(self, other: Any) -> bool:
        """Whether both may be the same bytes."""


#: The parts of shared memory that an instruction's address may name.
Parts = Callable[[Instruction, Operand], Sequence[Part]]


def check(kernel: Kernel, threads: Threads, parts: Parts) -> Iterator[tuple[Instruction, str]]:
    """What may begin before something else is over, each with the rule that it breaks."""
    case = _Case(kernel, threads, parts, kernel.instructions)
    yield from case.stores()
    yield from case.products()
    yield from case.waits()
    yield from case.meetings()
    yield from case.copies()


@dataclass(frozen=True, slots=True)
class _Case:
    kernel: Kernel
    threads: Threads
    parts: Parts
    instructions: list[Instruction]

    def stores(self) -> Iterator[tuple[Instruction, str]]:
        """A bulk store reads until it was waited for, and what other warps staged before they met
        the one that stores."""
        stores = [ins for ins in self._met() if _is_bulk_store(ins)]
        if not stores:
            return
        staged = [(ins, self.parts(ins, ins.operands[0])) for ins in self._met() if _stages(ins)]
        for ins in stores:
            who = self._thread(ins)
            source = self.parts(ins, Operand("address", parts=ins.operands[1].parts[:1]))
            reached = self._behind(ins.index, who, _waits_for_stores)
            others = (self._behind(ins.index, i, _waits_for_stores) for i in self._firsts(ins))
            if any(len(self.instructions) in each for each in others):
                yield ins, STORED
            for other, parts in staged:
                if not _meet(parts, source):
                    continue
                if other.index in reached:
                    yield other, STAGED
                alone = self._warps(other) <= self._warps(ins)
                if not alone and ins.index in self._behind(other.index, who, _joins_warps):
                    yield ins, UNMET

    def products(self) -> Iterator[tuple[Instruction, str]]:
        """A stage is given back once the products of it were waited for."""
        for ins, after in zip(self.instructions, [*self.instructions[1:], None], strict=True):
            if not _is_product(ins) or (after is not None and _is_product(after)):
                continue
            if not self.threads.reach[ins.index]:
                continue
            reached = self._behind(ins.index, self._thread(ins), _waits_for_products)
            for other in self.instructions:
                if other.index in reached and _gives_back(other):
                    yield other, UNREAD

    def waits(self) -> Iterator[tuple[Instruction, str]]:
        """Threads that multiply together all wait, or none: what one has waited for the others may
        read before it is there."""
        multiply = 0
        for ins in self._met():
            if _is_product(ins):
                multiply |= self.threads.reach[ins.index]
        for ins in self._met():
            if not _waits_for_barrier(ins):
                continue
            here = self.threads.reach[ins.index]
            for first in range(0, self.threads.count, GROUP):
                together = multiply & ((1 << GROUP) - 1) << first
                if here & together and together & ~here:
                    yield ins, UNFILLED
                    break

    def meetings(self) -> Iterator[tuple[Instruction, str]]:
        """CTAs that read or write each other's memory meet with a release."""
        meets = [ins for ins in self._met() if _is_relaxed(ins)]
        if not meets or not any(_is_remote(ins) for ins in self._met()):
            return
        for ins in self._met():
            if not _stages(ins):
                continue
            reached = self._behind(ins.index, self._thread(ins), _releases)
            for other in meets:
                if other.index in reached:
                    yield other, RELAXED

    def copies(self) -> Iterator[tuple[Instruction, str]]:
        """Threads that copy wait for something with each wait for their groups, or tell a barrier
        of all copies of a stage before they wait for the next stage."""
        asks = [ins for ins in self._met() if ins.opcode[:2] == ("cp", "async")]
        words = {ins.opcode[2] for ins in asks}
        if not words & {"wait_group", "mbarrier"}:
            return
        graph = blocks(self.kernel)
        for who in self._kinds():
            for at in sorted(self._vacant(graph, who)):
                yield self.instructions[at], VACANT
            if "mbarrier" in words:
                yield from ((ins, UNTOLD) for ins in self._untold(graph, who))

    def _vacant(self, graph: Mapping[int, Block], who: int) -> set[int]:
        """Waits of a thread ahead of which, behind the start or another wait, no path makes more
        groups than may be left."""
        waits = [ins for ins in self._met() if _waits_for_copies(ins)]
        cap = 1 + max((_left(ins) for ins in waits), default=0)
        found: set[int] = set()
        here = [ins for ins in waits if self.threads.reach[ins.index] >> who & 1]
        for start, groups in ((0, 0), *((ins.index + 1, _left(ins)) for ins in here)):
            most: dict[int, int] = {}
            due = [(start, groups)]
            while due:
                at, groups = due.pop()
                block = graph[max(first for first in graph if first <= at)]
                for ins in self.instructions[at : block.end]:
                    if _waits_for_copies(ins):
                        most[ins.index] = max(groups, most.get(ins.index, 0))
                        break
                    groups = min(groups + (ins.opcode == _ENDS_GROUP), cap)
                else:
                    for each in self._next(block, who):
                        if groups > most.get(each, -1):
                            most[each] = groups
                            due.append((each, groups))
            found |= {x.index for x in waits if _left(x) > 0 and most.get(x.index, cap) <= _left(x)}
        return found

    def _untold(self, graph: Mapping[int, Block], who: int) -> Iterator[Instruction]:
        """Waits of a thread for a barrier behind copies that no barrier is told of."""
        enters = {0: False}
        due = [0]
        while due:
            first = due.pop()
            now, block = enters[first], graph[first]
            for ins in self.instructions[first : block.end]:
                if now and _waits_for_barrier(ins):
                    yield ins
                now = _is_untold(ins, now)
            for each in self._next(block, who):
                if now > enters.get(each, -1):
                    enters[each] = now
                    due.append(each)

    def _next(self, block: Block, who: int) -> list[int]:
        """Blocks that a thread may come to behind one."""
        last = self.instructions[block.end - 1]
        runs = self._runs(last, who)
        if last.opcode[0] not in ("bra", "ret", "exit") or runs is None:
            return block.next
        target = self.kernel.labels.get(last.operands[0].name) if last.opcode[0] == "bra" else None
        goes_to = target if runs else block.end
        return [each for each in block.next if each == goes_to]

    def _kinds(self) -> list[int]:
        """A thread of each kind: those whose numbers send them the same ways."""
        guards = {ins.guard for ins in self._met() if ins.opcode[0] in ("bra", "ret", "exit")}
        known = [self.threads.known[each].values for each in guards if each in self.threads.known]
        kinds = {tuple(bool(x[who]) for x in known): who for who in range(self.threads.count)}
        return sorted(kinds.values())

    def _met(self) -> Iterator[Instruction]:
        """Instructions that any thread comes to."""
        return (ins for ins in self.instructions if self.threads.reach[ins.index])

    def _thread(self, ins: Instruction) -> int:
        """The first thread that comes to an instruction."""
        here = self.threads.reach[ins.index]
        return (here & -here).bit_length() - 1

    def _firsts(self, ins: Instruction) -> list[int]:
        """The first thread of each warp that comes to an instruction."""
        here = self.threads.reach[ins.index]
        warps = (here & 0xFFFFFFFF << i for i in range(0, self.threads.count, 32))
        return [(warp & -warp).bit_length() - 1 for warp in warps if warp]

    def _warps(self, ins: Instruction) -> int:
        """How many warps come to an instruction."""
        return len(self._firsts(ins))

    def _behind(self, start: int, who: int, stops: Test) -> set[int]:
        """Instructions that a thread may come to behind one without one that stops it; the number
        behind the last stands for the end."""
        end = len(self.instructions)
        reached: set[int] = set()
        due = [start + 1]
        while due:
            at = due.pop()
            while at not in reached:
                reached.add(at)
                if at == end:
                    break
                ins = self.instructions[at]
                runs = self._runs(ins, who)
                at += 1
                if runs is False:
                    continue
                name = ins.opcode[0]
                if stops(ins) or name in ("ret", "exit"):
                    if not stops(ins):
                        reached.add(end)
                    if runs:
                        break
                elif name == "bra":
                    due.append(self.kernel.labels.get(ins.operands[0].name, end))
                    if runs:
                        break
        return reached

    def _runs(self, ins: Instruction, who: int) -> bool | None:
        """Whether a thread runs an instruction, None where its number does not say."""
        if not ins.guard:
            return True
        known = self.threads.known.get(ins.guard)
        return None if known is None else bool(known.values[who]) != ins.negated


def _is_untold(ins: Instruction, before: bool) -> bool:
    """Whether a thread has made copies that no barrier is told of, behind an instruction."""
    if ins.opcode[:2] != ("cp", "async") or ins.opcode[2] == "bulk":
        return before
    if ins.opcode[2] in ("ca", "cg"):
        return True
    return before and (bool(ins.guard) or ins.opcode[2] not in ("mbarrier", "wait_all"))


def _meet(some: Sequence[Part], others: Sequence[Part]) -> bool:
    return any(one.meets(other) for one in some for other in others)


def _spaces(ins: Instruction) -> list[str]:
    return [word for word in ins.opcode if word == "global" or word in _SHARED]


def _is_bulk_store(ins: Instruction) -> bool:
    spaces = _spaces(ins)
    is_bulk = ins.opcode[:3] == ("cp", "async", "bulk")
    return is_bulk and len(spaces) == 2 and spaces[0] == "global"


def _waits_for_stores(ins: Instruction) -> bool:
    return ins.opcode[:3] == ("cp", "async", "bulk") and "wait_group" in ins.opcode


def _stages(ins: Instruction) -> bool:
    """Whether a thread stores in shared memory, its own CTA's or another's."""
    is_store = ins.opcode[0] in ("st", "stmatrix") and "async" not in ins.opcode
    return is_store and bool(set(_SHARED) & set(ins.opcode))


def _joins_warps(ins: Instruction) -> bool:
    """Whether warps of a CTA meet."""
    return ins.opcode[0] in ("bar", "barrier") and ins.opcode[1] != "warp"


def _is_product(ins: Instruction) -> bool:
    return ins.opcode[:2] == ("wgmma", "mma_async")


def _waits_for_barrier(ins: Instruction) -> bool:
    return ins.opcode[:2] in (("mbarrier", "try_wait"), ("mbarrier", "test_wait"))


def _waits_for_copies(ins: Instruction) -> bool:
    return ins.opcode == ("cp", "async", "wait_group")


def _left(ins: Instruction) -> int:
    """How many groups a wait leaves."""
    return ins.operands[0].value


def _waits_for_products(ins: Instruction) -> bool:
    return ins.opcode[:2] == ("wgmma", "wait_group")


def _gives_back(ins: Instruction) -> bool:
    """Whether a thread tells a barrier that it is done with something."""
    return ins.opcode[:2] == ("mbarrier", "arrive") and "expect_tx" not in ins.opcode


def _is_relaxed(ins: Instruction) -> bool:
    return ins.opcode[:3] == ("barrier", "cluster", "arrive") and "relaxed" in ins.opcode


def _is_remote(ins: Instruction) -> bool:
    """Whether a thread itself reads or writes another CTA's memory."""
    by_thread = ins.opcode[0] in ("ld", "st", "atom", "red") and "async" not in ins.opcode
    return by_thread and "shared::cluster" in ins.opcode


def _releases(ins: Instruction) -> bool:
    """Whether what a thread stored is ordered before what it tells others next."""
    if ins.opcode[0] in _ORDERS:
        return "mbarrier_init" not in ins.opcode and "proxy" not in ins.opcode
    return ins.opcode[:3] == ("barrier", "cluster", "arrive") and "relaxed" not in ins.opcode
