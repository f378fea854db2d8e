"""What to measure for a table of a second card, and in which order: the kernels of a pack alone.

python -m benchmarks.cards.plan PACK OUT.jsonl [TABLE] writes a line for each row of the pack and
prints what they take in GPU-minutes. Rows that TABLE has, the other card's as far as it goes
(manifests/sm_90a/h100), are left out. It needs no GPU. `rows` measures the lines in their order:
the grid's problems, fp16 nn, first, then layers of up to 256 rows, then the rest; within each of
these a sample of all sizes comes early, so that a run that is stopped is a fair one.

A line names the kernels to be timed against torch, those for dependent launch, and for large
problems those to be sustained: the row's own first, then what was best beside it on the first card,
then what won the nearest rows. Rows of other epilogues, of unaligned operands and of batches are
not among them: `generate --like` measures these.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import folders
from hgemm_packs.generator.campaigns import campaign, remeasure
from hgemm_packs.generator.compile import pack_kernels
from hgemm_packs.generator.compile.cache import write_atomically
from hgemm_packs.generator.compile.pack_kernels import Packed
from hgemm_packs.generator.compile.pack_writer import read_source
from hgemm_packs.generator.core import problems
from hgemm_packs.generator.core.spec import Choice
from hgemm_packs.generator.search.like import Like, Named
from hgemm_packs.generator.store import export
from hgemm_packs.generator.tables import dependent
from hgemm_packs.generator.tables.sustained import large
from hgemm_packs.problem import Problem

PARTS = ("grid nn f16", "layers up to M = 256", "the rest")
#: Kernels of a problem: against torch, for dependent launch, sustained.
COUNT, DEPENDENT, SUSTAINED = 3, 2, 2
LAYER_ROWS = 256
#: GPU-seconds on an H200: of finals and of a confirmation (`facts.json` of the exports), of a line
#: of dependent launch, of a sustained problem (docs/on_a_gpu.md).
SECONDS: Mapping[str, float] = {"finals": 0.134, "confirm": 0.252, "pdl": 0.1, "energy": 2.4}

Line = dict[str, Any]


def part_of(problem: Problem, grid: set[tuple[int, int, int]]) -> int:
    """The place of a problem's part in PARTS."""
    on_grid = (problem.m, problem.n, problem.k) in grid
    if on_grid and (problem.layout, problem.dtype) == ("nn", "f16"):
        return 0
    return 1 if not on_grid and problem.m <= LAYER_ROWS else 2


def order(rows: Iterable[Problem], grid: set[tuple[int, int, int]]) -> list[Problem]:
    """Part after part, each in steps over its problems by cost."""
    found: list[Problem] = []
    each: list[list[Problem]] = [[] for _ in PARTS]
    for problem in sorted(rows, key=problems.cost):
        each[part_of(problem, grid)].append(problem)
    for part in each:
        steps = max(1, round(len(part) ** 0.5))
        found += [problem for first in range(steps) for problem in part[first::steps]]
    return found


def is_plain(problem: Problem) -> bool:
    """Whether five values say all of a problem."""
    return problem == Problem(*problem.key[:5])


class Plan:
    """Chooses kernels of a pack for its rows. `ranked` has gains over torch of kernels by id on the
    first card, best first, `behind` those of names launched behind one another there."""

    def __init__(
        self,
        pack: Packed,
        ranked: remeasure.Ranked,
        behind: Mapping[dependent.Pair, float],
    ) -> None:
        self._pack, self._ranked = pack, ranked
        self._names = {entry.id: name for name, entry in pack.entries.items()}
        choices = {n: Choice.of(e.family, e.genome) for n, e in pack.entries.items()}
        self._by_choice = {choice: name for name, choice in choices.items()}
        won = {p: Named(choices[name], None) for p, name in pack.wins.items()}
        self._like = Like(won, None)
        self._behind: dict[tuple[Any, ...], list[str]] = {}
        for (problem, name), gain in sorted(behind.items(), key=lambda item: -item[1]):
            if gain > 1.0 and name in pack.entries:
                self._behind.setdefault(problem, []).append(name)

    def line(self, problem: Problem, part: str) -> Line:
        """The line of a row."""
        fits = self._fitting(problem)
        own = [name for name in (self._pack.wins.get(problem),) if name]
        beside = (self._names.get(id_) for id_ in self._ranked.get(problem, ()))
        near = (self._by_choice.get(one) for one in self._like.first_choices(problem))
        kernels = fits([*own, *beside, *near])
        ahead = [name for name in (self._pack.dependent.get(problem),) if name]
        return {
            "part": part,
            "problem": pack_kernels.problem_values(problem),
            "kernels": kernels[:COUNT],
            "dependent": fits([*ahead, *self._behind.get(problem.key[:5], ())])[:DEPENDENT],
            "sustained": kernels[:SUSTAINED] if large(problem) else [],
        }

    def _fitting(self, problem: Problem) -> Callable[[Iterable[str | None]], list[str]]:
        def fits(names: Iterable[str | None]) -> list[str]:
            once = dict.fromkeys(name for name in names if name is not None)
            return [name for name in once if self._pack.entries[name].admits(problem) is None]

        return fits


def make(plan: Plan, rows: Iterable[Problem]) -> list[Line]:
    """The lines of rows, in the order in which they are measured. A row that no kernel of the pack
    takes has none."""
    grid = problems.grid_shapes()
    ordered = order(filter(is_plain, rows), grid)
    found = [plan.line(problem, PARTS[part_of(problem, grid)]) for problem in ordered]
    return [line for line in found if line["kernels"]]


def leave_out(rows: Iterable[Problem], table: Path) -> list[Problem]:
    """The rows of which a source manifest has none. Raises PackError and OSError."""
    known = {Problem(*row.key) for row in read_source(table).table}
    return [problem for problem in rows if problem not in known]


def minutes(lines: Sequence[Line], wins: Callable[[Problem], bool]) -> dict[str, dict[str, float]]:
    """GPU-minutes of each part by kind of job, if the second card wins where the first did."""
    seconds = {part: Counter(dict.fromkeys(SECONDS, 0.0)) for part in PARTS}
    for line in lines:
        mine, problem = seconds[line["part"]], Problem(*line["problem"])
        mine["finals"] += SECONDS["finals"]
        if wins(problem):
            mine["confirm"] += SECONDS["confirm"]
            again = len(line["dependent"]) + bool(line["dependent"])
            mine["pdl"] += again * SECONDS["pdl"]
            mine["energy"] += bool(line["sustained"]) * SECONDS["energy"]
    return {
        part: {kind: round(s / 60, 1) for kind, s in {**each, "all": sum(each.values())}.items()}
        for part, each in seconds.items()
    }


def main(arguments: Sequence[str]) -> int:
    pack, out = Packed(Path(arguments[0])), Path(arguments[1])
    ranked = remeasure.rank(export.load(folders.RESULTS / folders.CONFIRMATIONS))
    names = folders.find_folders("--dependent")
    behind = dependent.read_speedups(campaign.answers(folders.list_files(*names)))
    rows = leave_out(pack.measured, Path(arguments[2])) if arguments[2:] else pack.measured
    lines = make(Plan(pack, ranked, behind), rows)
    write_atomically(out, "".join(json.dumps(line) + "\n" for line in lines).encode())
    left = sum(not is_plain(problem) for problem in rows)
    print(f"{out}: {len(lines)} rows, {left} left to `generate --like`")
    for part, each in minutes(lines, pack.wins.__contains__).items():
        count = sum(line["part"] == part for line in lines)
        words = ", ".join(f"{kind} {value}" for kind, value in each.items())
        print(f"{part}: {count} rows, GPU-minutes: {words}")
    return 0


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1:]))
