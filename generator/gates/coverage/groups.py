"""Problems for a kernel of groups, in which each comparison of sizes goes each way.

Called by `gate` of a family whose groups end where memory says: what follows from there is not
known, but what M, N and K alone decide is. The numeric gate runs these problems in groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from hgemm_packs.generator.gates.coverage.launches import Sizes
from hgemm_packs.generator.gates.coverage.planning import planner
from hgemm_packs.generator.gates.coverage.problems import tested
from hgemm_packs.generator.gates.coverage.program.machine import Endless
from hgemm_packs.generator.gates.coverage.program.outcomes import OTHER, ZERO
from hgemm_packs.generator.gates.coverage.proofs import Proofs
from hgemm_packs.generator.gates.coverage.trial import Trial

EACH: Final = 3  # of tested problems one is followed: all that follows is asked for
CTAS: Final = 2


class Asked:
    """`sizes` are the names of M, N and K; `problems` is what `follow` leaves."""

    def __init__(self, trial: Trial, proofs: Proofs, sizes: Sequence[str]) -> None:
        self.trial, self.proofs, self.k = trial, proofs, sizes[2]
        self.known = proofs.flow.kernel.instructions
        self.compared = [
            at
            for at in sorted(trial.machine.slice.observed)
            if (depends := proofs.depends(self.known[at]))
            and depends <= {*sizes}
            and not proofs.counters(self.known[at])
        ]
        self.problems: list[Sizes] = []

    def follow(self) -> Iterator[str]:
        """Look for problems; words for each outcome that none has."""
        try:
            self.trial.run(tested(self.trial.fields)[::EACH], whole=True, ctas=CTAS)
            if any(True for _ in self._missing()):
                planner.plan(self.trial, self._missing)
        except Endless as error:
            yield f"endless: {error}"
        had = [self.trial.seen.get(at, {}) for at in self.compared]
        self.problems = list(dict.fromkeys(each for outcomes in had for each in outcomes.values()))
        for at, _ in self._missing():
            ins = self.known[at]
            # Problems near each turn were followed, but for deep K: K is a loop.
            if self.k in self.proofs.depends(ins) or not self.proofs.turns_once(ins):
                yield f"one way: no problem takes the other in '{ins.text[:100]}'"

    def _missing(self) -> Iterator[tuple[int, int]]:
        """Outcomes that are still to be had: (instruction, outcome)."""
        for at in self.compared:
            seen = self.trial.seen.get(at, {})
            left = [each for each in (ZERO, OTHER) if seen and each not in seen]
            for outcome in left:
                if not self.proofs.excluded(self.known[at], outcome):
                    yield at, outcome
