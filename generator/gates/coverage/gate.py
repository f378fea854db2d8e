"""The size gate: every comparison on sizes is taken both ways by some problem that the kernel is
run on, nothing is touched outside A, B and C however large they are, and a CTA writes the tile that
its record declares.

`check` follows the integers of a kernel's PTX on many problems without a GPU. Called for finalists,
behind the data-flow gate. Its evidence names the problems that the numeric gate has to run beside
its own. What it cannot decide it refuses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from hgemm_packs.generator.compile import compiler
from hgemm_packs.generator.core import collector
from hgemm_packs.generator.core.spec import Status, Verdict
from hgemm_packs.generator.gates.coverage import (
    counts,
    groups,
    records,
    steering,
    undecided,
)
from hgemm_packs.generator.gates.coverage.exceptions import GROUPS, PLACES, RINGS, declared
from hgemm_packs.generator.gates.coverage.launches import Sizes
from hgemm_packs.generator.gates.coverage.planning import depth, planner, together
from hgemm_packs.generator.gates.coverage.problems import (
    LARGE_BYTES,
    by_memory,
    deepest,
    extremes,
    few,
    memory,
    tested,
    torn,
)
from hgemm_packs.generator.gates.coverage.program import widths
from hgemm_packs.generator.gates.coverage.program.machine import Endless
from hgemm_packs.generator.gates.coverage.program.outcomes import BOTH, OTHER, ZERO
from hgemm_packs.generator.gates.coverage.program.slices import makers
from hgemm_packs.generator.gates.coverage.proofs import RANK, Proofs, is_place
from hgemm_packs.generator.gates.coverage.reads import constants, irregular, tiles
from hgemm_packs.generator.gates.coverage.trial import Trial, tables
from hgemm_packs.generator.gates.dataflow import gate as dataflow
from hgemm_packs.generator.gates.dataflow.exceptions import is_of_family
from hgemm_packs.generator.gates.dataflow.flow import Flow
from hgemm_packs.generator.gates.dataflow.program.parse import Instruction, Unreadable
from hgemm_packs.pack.manifest import OF_BATCH

GATE: Final = "coverage"
MOST_TOLD: Final = 4  # refusals of a verdict
RANKED: Final = 8  # tested problems of which all CTAs of a cluster are followed
WATCHED_BYTES: Final = 1 << 22  # of a problem that the sanitizer's tools run
TURNS: Final = 8  # bits of a tile's number that problems on a GPU go round
SIZE_BITS: Final = 8  # the fewest that a family's number has which follows from a size
LEAST_OF_A_PLACE: Final = 23  # bits of a tile's number, which is taken up to 512 times
LEAST_BITS: Final = 24  # of what grows with K: so many steps of K are more than a card holds
SHARED: Final = 6  # tested problems in which CTAs that share tiles of a family are looked at
TILED: Final = 3  # of so many tested problems one is judged by its tiles

#: Both outcomes are needed of BOTH, and of these where a size alone decides, not a place of a grid
#: or the turn of a loop: what is never zero, or but for one size, tells that size from all others.
_BOTH_OF_SIZES: Final = frozenset(("shr", "div", "mul", "bfe", "cvt"))
_WORDS: Final = {ZERO: "false, zero or smaller", OTHER: "true, not zero or larger"}


def check(fields: Mapping[str, Any], source: str) -> Verdict:
    """Verdict on a built kernel: `fields` are its manifest fields with its `id`, `source` what it
    was compiled from. `detail` names broken rules with their instructions, the first ones alone."""
    try:
        return check_ptx(fields, compiler.ptx_of(source, fields))
    except compiler.BuildError as error:
        return Verdict(GATE, Status.COVERAGE, f"unreadable: {error}")


@collector.paused
def check_ptx(fields: Mapping[str, Any], ptx: str) -> Verdict:
    """The same of the kernel's PTX."""
    try:
        flow = dataflow.left(fields, ptx)
    except Unreadable as error:
        return Verdict(GATE, Status.COVERAGE, str(error))
    if GROUPS in declared(fields):
        trial = Trial(fields, flow.kernel, flow.roles, tables(ptx))
        proofs = Proofs(flow, trial.machine.slice, makers(flow.kernel))
        asked = groups.Asked(trial, proofs, list(flow.sizes))
        found = [*records.faults(flow), *asked.follow(), *counts.faults(trial)]
        return _verdict(found, by_memory(fields, asked.problems))
    return _Case(flow, Trial(fields, flow.kernel, flow.roles, tables(ptx))).verdict()


def _verdict(found: list[str], evidence: dict[str, Any]) -> Verdict:
    if not found:
        return Verdict(GATE, Status.OK, "", evidence)
    more = [f"{len(found) - MOST_TOLD} more"] if len(found) > MOST_TOLD else []
    return Verdict(GATE, Status.COVERAGE, "; ".join([*found[:MOST_TOLD], *more]), evidence)


class _Case:
    """One kernel on its way through the gate."""

    def __init__(self, flow: Flow, trial: Trial) -> None:
        self.flow, self.trial, self.fields = flow, trial, trial.fields
        self.exceptions = declared(self.fields)
        self.proofs = Proofs(flow, trial.machine.slice, makers(flow.kernel))
        names = list(flow.sizes)
        self.deep = {names[2], *([] if is_of_family(self.fields) else flow.strides)}
        self.enumerated = {"%tid.x", "%tid.y", "%tid.z", "%laneid"}
        self.enumerated |= {
            name
            for name, dim in zip(names, "mnk", strict=True)
            if few(self.fields["dims"][dim]) and dim == "m"
        }
        self.tried = False  # whether problems near each turn were followed
        self.met_deepest: set[int] = set()  # comparisons that were met at the largest K
        self.unread = ""  # what a CTA does not read of what its tile is made of
        self.undealt = ""  # what the CTAs of a persistent grid do not store once
        self.near: set[int] = set()  # numbers of 32 bits that would soon pass their end
        self.narrow: set[int] = set()  # instructions that lose what nobody has seen them lose
        self.depth = depth.Depth(trial)
        self.wanted = self.proofs.joins()
        trial.machine.notes.came = {at: set() for at in self.wanted}

    def verdict(self) -> Verdict:
        planned: list[Sizes] = []
        more: list[Sizes] = []
        try:
            self._follow()
            if any(True for _ in self.missing()):
                self.met_deepest = self.trial.meet(deepest(self.fields))
                planned = planner.plan(self.trial, self.missing)
                self.tried = True
        except Endless as error:
            return Verdict(GATE, Status.COVERAGE, f"endless: {error}")
        of_batch = self.fields["param_layout"] in OF_BATCH.values()
        if of_batch:  # whose gate has no problems of sizes
            met = (each for outcomes in self.trial.seen.values() for each in outcomes.values())
            planned = list(dict.fromkeys(each.sizes for each in met))
        found = [*self._refusals(planned), *self._too_large(planned)]
        if not (found or of_batch or is_of_family(self.fields)):
            more, found = together.plan(self.trial, planned)
            planned += more
            found += [*self._refusals(more), *self._too_large(more)]
        found += counts.faults(self.trial, more)
        evidence = {
            "comparisons": len(self.trial.machine.slice.observed),
            **by_memory(self.fields, planned),
            "ways": self._ways(),
        }
        return _verdict(found, evidence)

    def _follow(self) -> None:
        known = tested(self.fields)
        notes = self.trial.machine.notes
        notes.near = set()
        self.trial.run(known[:RANKED], ctas=20)
        self.trial.run(known[RANKED:], ctas=4)
        # As what CTAs read: wide rows of sm90_unaligned are right, and have such.
        self.near = set() if is_of_family(self.fields) else notes.near
        notes.near = None
        notes.asked = None
        self.trial.run(known[::TILED], whole=True, ctas=2)
        self.trial.read, notes.tables = notes.tables, {}
        kept, notes.came = notes.came, {}
        seen_lost, notes.lost = notes.lost, set()
        self.trial.glance(extremes(self.fields))
        notes.asked = frozenset()
        self.trial.glance(torn(self.fields))
        notes.came = kept
        suspects = (notes.lost | self._cut()) - seen_lost
        suspects = {at for at in suspects if not self._is_harmless(at, at in notes.lost)}
        if suspects:
            notes.lost, notes.asked = set(), suspects
            seen, self.trial.seen = self.trial.seen, {}
            self.trial.run(known[:RANKED], ctas=20)
            self.trial.run(known[RANKED:], ctas=4)
            self.trial.seen, notes.asked = seen, frozenset()
            self.narrow = suspects - notes.lost
        if not is_of_family(self.fields):
            grown = self.trial.grown_to
            self.narrow |= widths.wraps(self.flow.kernel, seen_lost | notes.lost, grown)
        self._oversee()

    def _oversee(self) -> None:
        """Whether CTAs read all that their tiles are made of, as families' kernels are known to,
        and who shares global memory."""
        notes = self.trial.machine.notes
        kept, notes.came = notes.came, {}
        if is_of_family(self.fields):
            self.unread = self.trial.share(tested(self.fields)[:SHARED])
        else:
            self.unread = self.trial.oversee(
                irregular.problems(self.fields), tiles.boxed(self.flow)
            )
        self.undealt = self.trial.deal()
        notes.came = kept

    def _needs_zero(self, ins: Instruction) -> bool:
        name = ins.opcode[0]
        return name in BOTH or (name in _BOTH_OF_SIZES and self.proofs.is_of_sizes(ins))

    def _is_harmless(self, at: int, seen: bool) -> bool:
        """Whether an instruction belongs to how a family lays tiles on a grid, as a product of a
        tile's number or a turn of few, or only masks, which lose bits themselves, read it. What the
        largest problems are `seen` to lose are places in a workspace, which no such grid has."""
        ins = self.flow.kernel.instructions[at]
        if self.proofs.is_masked(ins):
            return True
        places = [x for x in self.proofs.depends(ins) if is_place(x) and not x.startswith(RANK)]
        if PLACES not in self.exceptions or not places:
            return False
        bits = widths.kept(ins)
        if bits is None or bits <= TURNS:
            return True
        lays = bits >= LEAST_OF_A_PLACE or self.fields.get("workspace_bytes") or not seen
        return ins.opcode[0] != "and" and bool(lays)

    def _cut(self) -> set[int]:
        """Instructions that keep few bits of a number that grows with K, or that sizes decide, as
        far as ranges tell."""
        found = set()
        for ins in self.flow.kernel.instructions:
            if ins.index not in self.trial.machine.slice.needed:
                continue
            bits = widths.kept(ins)
            if bits is None or bits > LEAST_BITS:
                continue
            self.flow.active = self.flow.threads.reach[ins.index]
            operand = next(x for x in ins.operands[1:] if x.kind != "number")
            number = self.flow.value(operand)
            low, high = number.low, number.high
            if low is not None and high is not None and low >= 0 and high < 1 << bits:
                continue
            counters = self.proofs.nearest(ins)
            if not counters and self._cuts_a_size(ins, bits):
                found.add(ins.index)
            elif counters and self.trial.steady(counters) != counters:
                most = self.trial.most_of(operand.name)
                if most is None or most >= 1 << bits:
                    found.add(ins.index)
        return found

    def _cuts_a_size(self, ins: Instruction, bits: int) -> bool:
        """Whether sizes decide what an instruction keeps few bits of; so few that compilers put
        flags together by them are no size in families' kernels."""
        if bits < SIZE_BITS and is_of_family(self.fields):
            return False
        of_sizes = self.proofs.depends(ins) & {*self.flow.sizes}
        return bool(of_sizes) and self.proofs.is_of_sizes(ins, besides=RANK)

    def missing(self) -> Iterator[tuple[int, int]]:
        """Outcomes that are still to be had: (instruction, outcome)."""
        for at in sorted(self.trial.machine.slice.observed):
            seen = self.trial.seen.get(at)
            if not seen:
                continue  # nothing comes here, and the branch that leads here is one of these
            ins = self.flow.kernel.instructions[at]
            for outcome in (ZERO, OTHER):
                if outcome in seen or (outcome == ZERO and not self._needs_zero(ins)):
                    continue
                if not self._settled(ins, outcome):
                    yield at, outcome

    def _settled(self, ins: Instruction, outcome: int) -> bool:
        """Whether no problem has an outcome, as far as can be said."""
        proofs = self.proofs
        if proofs.excluded(ins, outcome):
            return True
        depends = proofs.depends(ins)
        in_grid = any(map(is_place, depends))
        counters = proofs.counters(ins)
        if PLACES in self.exceptions and in_grid and not proofs.names_a_place(ins):
            return self._stays(ins, counters)
        steady = self.trial.steady(counters) if counters else counters
        own = depends <= self.enumerated or (counters and RINGS in self.exceptions)
        if not in_grid and own and steady == counters:
            return True
        if not self.tried or not proofs.turns_once(ins):
            return False
        ends_with_k = depends & self.deep or counters - steady
        met = not ends_with_k or ins.index in self.met_deepest
        return met and self._stays(ins, counters)

    def _stays(self, ins: Instruction, counters: set[str]) -> bool:
        """Whether K's loop makes no other outcome of a comparison, however deep it is."""
        return not self.trial.deepened(counters) or self.depth.stays(ins)

    def _ways(self) -> list[list[int]]:
        """Problems in which each comparison on sizes goes each way, as far as these are small: what
        a barrier depends on is met by tools that see races. Of a family's kernel those alone in
        which a place in the grid is told by its number: these tools know its other problems."""
        told = self.trial.kernel.instructions
        had = [
            outcomes[each].sizes
            for at, outcomes in sorted(self.trial.seen.items())
            if not is_of_family(self.fields) or self.proofs.names_a_place(told[at])
            for each in outcomes
        ]
        small = [each[:3] for each in had if memory(self.fields, each) <= WATCHED_BYTES]
        return [list(each) for each in dict.fromkeys(small)]

    def _refusals(self, planned: Sequence[Sizes]) -> Iterator[str]:
        yield from records.faults(self.flow)
        told = self.trial.faults
        yield from (told[at] for at in sorted(told))
        yield from filter(None, (self.trial.tile, self.unread, self.undealt))
        for at in sorted(self.trial.unknown):
            yield f"undecided: an address from memory in '{self._text(at)}'"
        for ins in undecided.users(self.flow, self.trial.machine.slice):
            words = "from memory decides on" if ins.guard else "that is not known in"
            yield f"undecided: a number {words} '{self._text(ins.index)}'"
        blank = self.trial.machine.notes.blank & self.trial.machine.slice.observed
        for at in sorted(blank):
            yield f"undecided: a number that is not known in '{self._text(at)}'"
        for at in sorted(self.trial.machine.notes.beyond):
            yield f"bounds: behind an array in constant memory in '{self._text(at)}'"
        for at in sorted(self.trial.machine.notes.by_zero | self._divides_by_zero()):
            yield f"undecided: a divisor that may be zero in '{self._text(at)}'"
        for at in sorted(self.narrow):
            yield f"width: bits that no problem of the gate has are lost in '{self._text(at)}'"
        for at in sorted(self.near):
            yield f"width: a number next to the end of 32 bits in '{self._text(at)}'"
        yield from steering.faults(self.flow, self.proofs)
        came = self.trial.machine.notes.came
        for at, value in widths.missing(self.wanted, came).items():
            yield f"one way: never {value} in '{self._text(at)}'"
        yield from constants.faults(self.trial, self.proofs, planned)
        for at, outcome in self.missing():
            yield f"one way: never {_WORDS[outcome]} in '{self._text(at)}'"

    def _divides_by_zero(self) -> set[int]:
        """Families' divisors are known: ranges say less of them."""
        return set() if is_of_family(self.fields) else self.proofs.may_divide_by_zero()

    def _text(self, at: int) -> str:
        return self.trial.kernel.instructions[at].text[:100]

    def _too_large(self, planned: list[Sizes]) -> Iterator[str]:
        for each in planned:
            if memory(self.fields, each) > LARGE_BYTES:
                yield f"untested: what {each.text} alone decides, for which no card has the memory"
