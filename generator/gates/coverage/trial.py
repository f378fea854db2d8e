"""A kernel on many problems at once, as far as that goes without a GPU: what it decided, and which
addresses it touched.

Made by `gate` and `planner`; a trial keeps what earlier runs of it saw.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from hgemm_packs.generator.gates.coverage.bounds import Bounds
from hgemm_packs.generator.gates.coverage.exceptions import GROUPS, declared
from hgemm_packs.generator.gates.coverage.launches import Launch, Sizes, launch, ranks, threads
from hgemm_packs.generator.gates.coverage.problems import SMS, loops
from hgemm_packs.generator.gates.coverage.program.arithmetic import Array
from hgemm_packs.generator.gates.coverage.program.machine import MOST_STEPS, Endless, Machine
from hgemm_packs.generator.gates.coverage.program.memory import Memory
from hgemm_packs.generator.gates.coverage.program.registers import Threads
from hgemm_packs.generator.gates.coverage.program.slices import makers
from hgemm_packs.generator.gates.coverage.reads import dealt
from hgemm_packs.generator.gates.coverage.reads.sharing import Sharing
from hgemm_packs.generator.gates.coverage.reads.tiles import Reads
from hgemm_packs.generator.gates.coverage.watchers.tell import Tell
from hgemm_packs.generator.gates.dataflow.exceptions import is_of_family
from hgemm_packs.generator.gates.dataflow.program.parse import Kernel

CTAS: Final = 3  # of a problem of which the beginning is followed
OVERSEEN: Final = 6  # of a problem of which all that is read is looked at
IN_TEAMS: Final = 9  # where several share a tile: all of the first such are among them
STEPS: Final = 400
FEW: Final = 2  # clusters that a small device runs at a time
_TABLE: Final = re.compile(
    r"\.const\s+(?:\.align\s+\d+\s+)?\.[bsu]8\s+([\w$]+)\[(\d+)\]\s*=\s*\{([^}]*)\}"
)


#: The least and the most of registers.
Spans = dict[str, tuple[int, int]]


@dataclass(slots=True)
class Trial:
    """`seen`: instruction -> outcome -> the first launch that had it and of that one CTA that had,
    for all runs so far. `dealt`: the same of the run of all CTAs of persistent grids. `read`: which
    bytes of constant arrays each load of problems on a card read. `roles` as the data-flow gate has
    them."""

    fields: Mapping[str, Any]
    kernel: Kernel
    roles: Mapping[str, str]
    tables: Mapping[str, Array] = field(default_factory=dict)
    machine: Machine = field(init=False)
    seen: dict[int, dict[int, Launch]] = field(default_factory=dict)
    faults: dict[int, str] = field(default_factory=dict)
    unknown: set[int] = field(default_factory=set)
    tile: str = ""
    dealt: dict[int, dict[int, Launch]] = field(default_factory=dict)
    read: dict[tuple[str, int], Array] = field(default_factory=dict)
    _spans: list[tuple[Spans, Spans]] | None = None  # of deep problems, and of all

    def __post_init__(self) -> None:
        memory = Memory() if GROUPS in declared(self.fields) else None
        self.machine = Machine(self.kernel, self.tables, memory=memory)

    @property
    def at_a_time(self) -> int:
        """CTAs that the device runs at once."""
        return SMS * max(1, int(self.fields["genome"].get("ctas_per_sm", 1)))

    def named_places(self) -> set[int]:
        """Numbers with which a kernel compares the place of a CTA in its grid."""
        made, found = makers(self.kernel), set()
        for ins in self.kernel.instructions:
            numbers = {each.value for each in ins.operands[1:] if each.kind == "number"}
            if ins.opcode[0] != "setp" or not numbers:
                continue
            names = [name for each in ins.operands[1:] for name in each.registers()]
            sources = [each for name in names for each in made.get(name, ())]
            if {each.opcode[0] for each in sources} == {"mov"} and all(
                each.operands[1].name == "%ctaid.x" for each in sources
            ):
                found |= numbers
        return found

    def run(
        self,
        problems: Sequence[Sizes],
        whole: bool = False,
        ctas: int = 8,
        gaps: bool = False,
        steps: int = MOST_STEPS,
        most: int | None = None,
    ) -> None:
        """Follow problems to their ends. With `whole` the device runs all CTAs at once, so that
        each has one tile, and tiles are judged; else `most` of them run. Raises Endless."""
        if not problems:
            return
        if most is None and not whole:
            most = self.at_a_time
        laid = [launch(self.fields, sizes, most, ctas) for sizes in problems]
        who = threads(self.fields, self.kernel.params, self.roles, laid)
        bounds = Bounds(self.fields, laid, who)
        machine = self.machine
        machine.outcomes.seen = {at: dict.fromkeys(each, -1) for at, each in self.seen.items()}
        machine.outcomes.gaps = {} if gaps else None
        machine.run(who, bounds, steps)
        bounds.settle()
        for at, outcomes in self._had(laid).items():
            self.seen.setdefault(at, {}).update(outcomes)
        self.faults = bounds.faults | self.faults
        self.unknown |= bounds.unknown
        if whole and not self.tile:
            self.tile = bounds.tile_fault()

    def _had(self, laid: Sequence[Launch]) -> dict[int, dict[int, Launch]]:
        """Outcomes of the last run, each with the CTA of these launches that had it first."""
        ctas = [each._replace(ctas=[cta]) for each in laid for cta in each.ctas]
        return {
            at: {outcome: ctas[of] for outcome, of in outcomes.items() if of >= 0}
            for at, outcomes in self.machine.outcomes.seen.items()
        }

    def oversee(self, problems: Sequence[Sizes], boxed: Mapping[int, str]) -> str:
        """Follow problems for what each CTA reads of A and B, and what it shares with others; words
        for what one leaves out, or for a rule of `Sharing`. `boxed` as `Reads` has it."""
        shared = ranks(self.fields) > 1 or int(self.fields["grid"].get("slices", 1)) > 1
        ctas = IN_TEAMS if shared else OVERSEEN
        laid = [launch(self.fields, sizes, None, ctas) for sizes in problems]
        who = self._look(laid)
        reads = Reads(self.fields, laid, who, boxed)
        sharing = Sharing(who, by_thread=True)
        self.machine.run(who, Tell([(lambda _: True, reads), (lambda _: True, sharing)]))
        reads.settle()
        self.faults = reads.faults | self.faults
        return reads.missing() or sharing.fault()

    def share(self, problems: Sequence[Sizes]) -> str:
        """Follow problems for what CTAs that share a tile share with others, if any do; words for
        a rule of `Sharing`."""
        if int(self.fields["grid"].get("slices", 1)) < 2:
            return ""
        who = self._look([launch(self.fields, sizes, None, IN_TEAMS) for sizes in problems])
        sharing = Sharing(who)
        self.machine.run(who, sharing)
        return sharing.fault()

    def deal(self) -> str:
        """Follow all CTAs of persistent grids; words for what these do not store once."""
        if not self.fields["grid"].get("persistent"):
            return ""
        laid = dealt.launches(self.fields)
        who = self._look(laid)
        found = dealt.Dealt(self.fields, laid, who)
        self.machine.run(who, found)
        found.settle()
        self.faults = found.faults | self.faults
        self.unknown |= found.unknown
        self.dealt = self._had(laid)
        return found.fault() or self._deal_to_many(found.warps)

    def _deal_to_many(self, warps: Set[int]) -> str:
        """The same of many numbers of clusters, by the first elements of tiles: of a family the
        warps that store these are followed alone."""
        laid = dealt.of_primes(self.fields)
        if not laid:
            return ""
        who = self._look(laid)
        if is_of_family(self.fields):
            who = dealt.of_warps(who, warps)
        found = dealt.Firsts(self.fields, laid, who)
        self.machine.run(who, found)
        found.settle()
        return found.fault()

    def _look(self, laid: Sequence[Launch]) -> Threads:
        """Threads of a run whose outcomes count for nothing."""
        self.machine.outcomes.seen = {}
        self.machine.outcomes.gaps = None
        return threads(self.fields, self.kernel.params, self.roles, laid)

    def glance(self, problems: Sequence[Sizes]) -> None:
        """Follow problems for their addresses and tiles alone: no card has the memory."""
        seen = self.seen
        self.seen = {}
        self.run(problems, whole=True)
        self.seen = seen

    def read_by(self, planned: Sequence[Sizes]) -> Mapping[tuple[str, int], Array]:
        """Which bytes of an array in constant memory each load reads in tested problems and planned
        ones: what only others read is read on no card."""
        notes = self.machine.notes
        others, notes.tables = notes.tables, self.read
        if others:
            with contextlib.suppress(Endless):
                self.glance(planned)
        for load, read in others.items():
            self.read.setdefault(load, np.zeros_like(read))
        notes.tables = others
        return self.read

    def steady(self, registers: Set[str]) -> set[str]:
        """Those of these registers whose least and most numbers are the same when K is twice as
        deep, and when a CTA has twice as many tiles: what is decided by them was seen."""
        once, twice = (every for _, every in self._twice())
        return {name for name in registers if name in once and once[name] == twice[name]}

    def deepened(self, registers: Set[str]) -> set[str]:
        """Those of these registers that have other numbers when K is twice as deep."""
        if not registers:
            return set()
        once, twice = (deep for deep, _ in self._twice())
        return {name for name in registers if name in once and once[name] != twice[name]}

    def most_of(self, register: str) -> int | None:
        """The largest number of a register at the deepest K of the record, if it goes on to grow
        with K as it does from a depth to twice that; None where it was not followed. What grows
        otherwise takes a comparison, of which both outcomes are seen."""
        once, twice = (every for _, every in self._twice())
        depths = [max(each.k for each in loops(self.fields, turns)[0]) for turns in (1, 2)]
        if register not in once or depths[0] >= depths[1] or min(once[register]) < 0:
            return None
        grown = twice[register][1] - once[register][1]
        left = int(self.fields["dims"]["k"]["max"]) - depths[1]
        return twice[register][1] + -(-grown * left // (depths[1] - depths[0]))

    def grown_to(self, register: str) -> int | None:
        """The same of one that several instructions write and that grows; None of others."""
        once, twice = (every for _, every in self._twice())
        grows = register in once and once[register] != twice[register]
        return self.most_of(register) if grows else None

    def comes_to(self, problem: Sizes, at: int, outcome: int) -> bool:
        """Whether a comparison has an outcome in a problem, as far as its first steps tell."""
        seen, self.seen = self.seen, {}
        with contextlib.suppress(Endless):
            self.run([problem], whole=True, ctas=CTAS, steps=STEPS)
        known, self.seen = self.machine.outcomes.seen.get(at, {}), seen
        return outcome in known

    def _twice(self) -> list[tuple[Spans, Spans]]:
        """The least and the most of registers at a depth, and at twice that; of all that have
        several writes, for another run would cost as much."""
        if self._spans is None:
            every = self.machine.slice.sized & self.kernel.joins.keys()
            self._spans = [self._span(every, turns) for turns in (1, 2)]
        return self._spans

    def _span(self, registers: Set[str], turns: int) -> tuple[Spans, Spans]:
        seen, machine = self.seen, self.machine
        self.seen = {}
        own = {name: name.partition("#")[0] for name in registers}
        spans: Spans = dict.fromkeys(own.values(), (1 << 62, -(1 << 62)))
        machine.spans = spans
        deep_ones, many = loops(self.fields, turns)
        self.run(deep_ones, whole=True, ctas=2)
        deep = dict(spans)
        self.run(many, ctas=2, most=FEW * ranks(self.fields))
        machine.spans, self.seen = None, seen
        return (
            {n: deep[base] for n, base in own.items()},
            {n: spans[base] for n, base in own.items()},
        )

    def meet(self, problems: Sequence[Sizes]) -> set[int]:
        """The comparisons that the beginnings of problems come to, whose outcomes count for
        nothing but are the same as were seen."""
        seen, met = self.seen, set()
        for each in problems:  # one in a long loop holds up the others' beginnings
            self.seen = {}
            with contextlib.suppress(Endless):
                self.run([each], whole=True, ctas=CTAS, steps=STEPS)
            met |= {
                at
                for at, outcomes in self.machine.outcomes.seen.items()
                if set(outcomes) <= set(seen.get(at, ()))
            }
        self.seen = seen
        return met


def tables(ptx: str) -> dict[str, Array]:
    """The bytes of arrays in constant memory, by name."""
    found = {}
    for name, size, text in _TABLE.findall(ptx):
        numbers = [int(each, 0) for each in text.split(",")]
        # Zeros at the end are left out.
        found[name] = np.array(numbers + [0] * (int(size) - len(numbers)), np.uint8)
    return found
