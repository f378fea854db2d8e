"""Comparisons of what grows with K, which a trial follows for a few turns of a loop: whether they
come out the same up to the largest K of a record.

Called by `gate`. What a comparison compares at a depth and at twice that is taken to go on as it
does: what does not takes another comparison.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from hgemm_packs.generator.gates.coverage.launches import Sizes
from hgemm_packs.generator.gates.coverage.problems import loops, make
from hgemm_packs.generator.gates.coverage.trial import Trial
from hgemm_packs.generator.gates.dataflow.program.parse import Instruction

CTAS: Final = 8  # of a problem that is followed at two depths


class Followed(NamedTuple):
    """The deepest K of a run; the least distance of what each comparison compared there; the least
    and the most of what comparisons read."""

    depth: int
    gaps: dict[int, float]
    spans: dict[str, tuple[int, int]]


@dataclass(slots=True)
class Depth:
    """One kernel at two depths, which are followed once anything is asked."""

    trial: Trial
    _runs: dict[tuple[Sizes, ...], tuple[Followed, Followed]] = field(default_factory=dict)

    def stays(self, ins: Instruction) -> bool:
        """Whether a comparison has no other outcome at any K of the record: what it compares comes
        no nearer to each other, or not so near, and neither comes round."""
        once, twice = self._followed(ins.index)
        left = int(self.trial.fields["dims"]["k"]["max"]) - twice.depth
        if ins.index not in once.gaps or ins.index not in twice.gaps or once.depth == twice.depth:
            return False
        scale = left / (twice.depth - once.depth)

        def at_last(before: float, after: float) -> float:
            return after + (after - before) * scale

        gap = twice.gaps[ins.index]
        last = at_last(once.gaps[ins.index], gap)
        turns = last <= 0 if gap > 0 else last >= 0
        if turns and last != gap:
            return False
        low, high = _range(ins.opcode[-1])
        for name in _read(ins):
            if name not in twice.spans:
                continue
            spans = (_of(each.spans[name], low, high) for each in (once, twice))
            ends = zip(*spans, strict=True)
            if not all(low <= at_last(*each) <= high for each in ends):
                return False
        return True

    def _followed(self, at: int) -> tuple[Followed, Followed]:
        """Both depths, of the usual problem or else of one in which a comparison was met."""
        fields = self.trial.fields
        usual = tuple(max(loops(fields, turns)[0], key=lambda each: each.k) for turns in (1, 2))
        found = self._run(usual)
        if all(at in each.gaps for each in found):
            return found
        had = next(iter(self.trial.seen[at].values())).sizes
        return self._run(tuple(_deeper(fields, had, each.k) for each in usual))

    def _run(self, problems: tuple[Sizes, ...]) -> tuple[Followed, Followed]:
        if problems not in self._runs:
            kernel, observed = self.trial.kernel, self.trial.machine.slice.observed
            names = {name for at in observed for name in _read(kernel.instructions[at])}
            once, twice = (self._follow(names, each) for each in problems)
            self._runs[problems] = once, twice
        return self._runs[problems]

    def _follow(self, names: Set[str], problem: Sizes) -> Followed:
        trial, machine = self.trial, self.trial.machine
        seen, trial.seen = trial.seen, {}
        machine.spans = dict.fromkeys(names, (1 << 62, -(1 << 62)))
        trial.run([problem], whole=True, ctas=CTAS, gaps=True)
        found, machine.spans, trial.seen = machine.spans, None, seen
        known = (machine.outcomes.gaps or {}).items()
        gaps = {at: float(each.least[0]) for at, each in known if each.order}
        written = {name: span for name, span in found.items() if span[0] <= span[1]}
        return Followed(problem.k, gaps, written)


def _deeper(fields: Mapping[str, Any], had: Sizes, further: int) -> Sizes:
    """A problem whose K goes further, and which is as aligned."""
    made = next(make(fields, [(had.m, had.n, had.k + further)], align=had.align))
    of_a, of_b, of_c = (
        stride // 8 * 8 + each % 8 for stride, each in zip(made.strides, had.strides, strict=True)
    )
    return made._replace(strides=(of_a, of_b, of_c), batches=had.batches)


def _read(ins: Instruction) -> Iterator[str]:
    """Registers that a comparison reads, by the names that the machine has for them."""
    for operand in ins.operands[1:]:
        yield from (name.partition("#")[0] for name in operand.registers())


def _range(word: str) -> tuple[int, int]:
    """The numbers of a type."""
    bits = int(word[1:]) if word[1:].isdecimal() else 32
    return (0, (1 << bits) - 1) if word[0] == "u" else (-(1 << bits - 1), (1 << bits - 1) - 1)


def _of(span: tuple[int, int], low: int, high: int) -> tuple[int, int]:
    """A range as numbers of a type from `low` to `high`: below zero where that has no sign they
    are those at its end, unless some are above."""
    beyond = high + 1 if low == 0 and span[1] < 0 else 0
    return span[0] + beyond, span[1] + beyond
