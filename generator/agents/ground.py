"""Where a run stands: its problem, the genomes that may be proposed, the machine, examples.

Shared by the roles of one run; nothing in it changes but what is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from hgemm_packs.generator.agents import archive
from hgemm_packs.generator.agents.archive import Example
from hgemm_packs.generator.agents.words import Attempt
from hgemm_packs.generator.core.space import Space
from hgemm_packs.generator.core.spec import Choice, DeviceFacts
from hgemm_packs.generator.devices.counters import Counters
from hgemm_packs.generator.evaluator.candidate import Source
from hgemm_packs.generator.search import prior
from hgemm_packs.problem import Problem

CountersOf = Callable[[Choice | Source, Problem], Counters | None]


def _none(one: Choice | Source, problem: Problem) -> None:
    pass


@dataclass
class Ground:
    """`space` is what a genome may be chosen from; `known` are examples of earlier runs. Where
    kernels are `compiled` their machine code is looked at too. `counters` reads those of a GPU, of
    a kernel that has passed every gate; it gives None where there are none."""

    space: Space
    device: DeviceFacts
    known: Sequence[Example] = field(default=())
    compiled: bool = False
    counters: CountersOf = _none

    @property
    def problem(self) -> Problem:
        return self.space.problem

    @cached_property
    def ranked(self) -> list[Choice]:
        """The listed choices, the fastest by the analytic model first."""
        rows = prior.rows_of(self.space)
        return [rows.choices[i] for i in np.argsort(rows.prior, kind="stable")]

    @cached_property
    def families(self) -> list[str]:
        """Families of the space, that of the choice which the model likes best first."""
        return list(dict.fromkeys(choice.family for choice in self.ranked))

    def examples(self, attempts: Sequence[Attempt]) -> list[Example]:
        """Fast, middling and slow kernels of earlier runs and of this one."""
        return archive.contrast([*self.known, *archive.of_attempts(attempts, self.problem)])
