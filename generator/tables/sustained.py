"""Which kernel of a large problem a table names: the one that is fastest for long, where
`generate measure sustained` measured that; and the pack of kernels that it chooses among.

Called by the CLI when it writes a table. From 1e11 operations on a card runs at its power limit,
and what is fastest in a burst need not be what is fastest once it has settled. Nothing is measured
here, and only a confirmed win is ever chosen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hgemm_packs.generator.compile.pack_writer import SourceManifest
from hgemm_packs.generator.store.findings import Findings
from hgemm_packs.generator.tables import judge, table
from hgemm_packs.generator.tables.judge import Contender, Listed
from hgemm_packs.generator.tables.table import Usable
from hgemm_packs.problem import Problem

TIE = 0.005  # slower by less than this is a tie
LEAST_FLOP = 1e11


def large(problem: Problem, least_flop: float = LEAST_FLOP) -> bool:
    return 2 * problem.m * problem.n * problem.k >= least_flop


def confirmed(found: Findings, least_flop: float = LEAST_FLOP) -> dict[Problem, list[str]]:
    """Large problems -> ids of the kernels that are confirmed wins there, the best of the finals
    first. Raises ValueError without trials."""
    fields = tuple(each for each in found.fields if large(each.problem, least_flop))
    listed = judge.contenders(replace(found, fields=fields), judge.floors(found))
    return {problem: [c.kernel for c in each if c.proven] for problem, each in listed.items()}


def ranked(
    listed: Listed, lines: Iterable[Mapping[str, Any]], names: Mapping[str, str]
) -> dict[Problem, list[Contender]]:
    """`listed` with the sustained gain over torch in place of that of the finals, best first, for
    problems with a line of which a proven kernel takes part; `names` are those of kernels by id.

    So pruning weighs those kernels by that gain too, a tie as nothing. One that is slower than
    torch by more than TIE, or was not sustained, may not be named there any more: where there are
    lines, a large problem without one has no kernel.
    """
    lines, made = list(lines), {problem: list(each) for problem, each in listed.items()}
    if lines:
        made |= {p: _by_time(each, {}, names) for p, each in made.items() if large(p)}
    for line in lines:
        problem = Problem(*line["problem"])
        us = {arm: run["us"] for arm, run in line["sustained"].items()}
        each = listed.get(problem, ())
        if any(c.proven and names[c.kernel] in us for c in each):
            made[problem] = _by_time(each, us, names)
    return made


def _by_time(
    each: Sequence[Contender], us: Mapping[str, float], names: Mapping[str, str]
) -> list[Contender]:
    lasting, others = [], []
    for one in each:
        gain = us["torch"] / us[names[one.kernel]] if names[one.kernel] in us else 0.0
        if one.proven and gain >= 1.0 / (1.0 + TIE):
            lasting.append(replace(one, gain=gain))
        else:
            others.append(replace(one, proven=False))
    return [*sorted(lasting, key=lambda c: (-c.gain, c.kernel)), *others]


def candidates(found: Findings, usable: Usable, least_flop: float = LEAST_FLOP) -> SourceManifest:
    """The source manifest of every confirmed win on problems from `least_flop` on, unpruned, as far
    as they are `usable`: what `ranked` may choose among. Raises ValueError without one."""

    def wins(problem: Problem, each: list[Contender]) -> list[Contender]:
        return [c for c in each if c.proven] if large(problem, least_flop) else []

    document, _ = table.candidates(found, usable, wins)
    return document
