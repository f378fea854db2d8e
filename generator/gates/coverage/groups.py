"""What sizes decide for a kernel of groups, and what the list of their ends does.

Called by `gate` of a family whose tiles follow from a list in memory. What M, N and K alone decide
is planned for: the numeric gate runs these problems in groups. What the list decides is to go each
way on lists that both gates have (`lists`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from hgemm_packs.generator.gates.coverage import lists
from hgemm_packs.generator.gates.coverage.launches import Launch, Sizes
from hgemm_packs.generator.gates.coverage.planning import planner
from hgemm_packs.generator.gates.coverage.problems import tested
from hgemm_packs.generator.gates.coverage.program.machine import Endless
from hgemm_packs.generator.gates.coverage.program.memory import is_load
from hgemm_packs.generator.gates.coverage.program.outcomes import BOTH, OTHER, ZERO
from hgemm_packs.generator.gates.coverage.proofs import Proofs, is_place, is_threshold, reading
from hgemm_packs.generator.gates.coverage.trial import Trial
from hgemm_packs.generator.gates.dataflow.program.parse import Instruction

EACH: Final = 3  # of tested problems one is followed: all that follows is asked for
CTAS: Final = 2
CTAS_OF_LISTS: Final = 4


class Asked:
    """`sizes` are the names of M, N and K; `problems` is what `follow` leaves."""

    def __init__(self, trial: Trial, proofs: Proofs, sizes: Sequence[str]) -> None:
        self.trial, self.proofs, self.sizes = trial, proofs, frozenset(sizes)
        self.k = sizes[2]
        self.known = proofs.flow.kernel.instructions
        depends = {at: proofs.depends(self.known[at]) for at in trial.machine.slice.observed}
        self.compared = [
            at
            for at, names in sorted(depends.items())
            if names and names <= self.sizes and not proofs.counters(self.known[at])
        ]
        groups = trial.kernel.params[-1]  # how many
        self.of_lists = [
            at
            for at, names in sorted(depends.items())
            if groups in names or any(map(is_place, names)) or self._is_from_a_list(self.known[at])
        ]
        self.problems: list[Sizes] = []

    def follow(self) -> Iterator[str]:
        """Look for problems; words for each outcome that none has."""
        trial = self.trial
        try:
            trial.run(tested(trial.fields)[::EACH], whole=True, ctas=CTAS)
            if any(True for _ in self._missing()):
                planner.plan(trial, self._missing)
            had = [trial.seen.get(at, {}) for at in self.compared]
            of_sizes = [each.sizes for outcomes in had for each in outcomes.values()]
            self.problems = list(dict.fromkeys(of_sizes))
            of_groups = lists.problems(trial.fields)
            trial.run(of_groups, ctas=CTAS_OF_LISTS)
            narrow = [each for each in of_groups if each.n == min(x.n for x in of_groups)]
            trial.run(narrow, ctas=1, most=1)  # which goes through all of a list
            far = self._far()
            undealt = trial.deal()
        except Endless as error:
            yield f"endless: {error}"
            return
        for at, _ in self._missing():
            ins = self.known[at]
            # Problems near each turn were followed, but for deep K: K is a loop.
            if self.k in self.proofs.depends(ins) or not self.proofs.turns_once(ins):
                yield f"one way: no problem takes the other in '{ins.text[:100]}'"
        for at in self.of_lists:
            seen = {*trial.seen.get(at, ()), *far.get(at, ())}
            if any(each not in seen and self._is_asked(at, each) for each in (ZERO, OTHER)):
                yield f"one way: no list of groups takes the other in '{self.known[at].text[:100]}'"
        for at in sorted(trial.machine.memory.unwritten if trial.machine.memory else ()):
            yield f"undecided: a number that nobody stored in '{self.known[at].text[:100]}'"
        yield from trial.faults.values()
        if undealt:
            yield undealt

    def _far(self) -> dict[int, dict[int, Launch]]:
        """What comparisons come to among more tiles than any other problem has."""
        trial = self.trial
        seen, trial.seen = trial.seen, {}
        trial.run(lists.far(trial.fields), whole=True, ctas=CTAS_OF_LISTS)
        seen, trial.seen = trial.seen, seen
        return seen

    def _is_asked(self, at: int, outcome: int) -> bool:
        ins = self.known[at]
        if outcome == ZERO and ins.opcode[0] not in BOTH:
            return False  # a group that is there has a tile
        return not (self._is_of_two(ins) or self.proofs.excluded(ins, outcome))

    def _is_of_two(self, ins: Instruction) -> bool:
        """Whether an instruction asks which of two numbers from a list is larger: a tile that a
        group has begins before the group ends."""
        if not is_threshold(ins):
            return False
        return all(self._is_from_a_list(reading(ins, operand)) for operand in (1, 2))

    def _is_from_a_list(self, ins: Instruction) -> bool:
        return any(map(is_load, self.proofs.sources(ins)))

    def _missing(self) -> Iterator[tuple[int, int]]:
        """Outcomes that are still to be had: (instruction, outcome)."""
        for at in self.compared:
            seen = self.trial.seen.get(at, {})
            left = [each for each in (ZERO, OTHER) if seen and each not in seen]
            for outcome in left:
                if not self.proofs.excluded(self.known[at], outcome):
                    yield at, outcome
