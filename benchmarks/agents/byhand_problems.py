"""The problems that kernels are written for by hand: those on which the table is furthest from the
floor, by a rule. `benchmarks.agents.byhand` says the rest.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hgemm_packs.generator.compile import pack_kernels
from hgemm_packs.generator.compile.cache import write_atomically
from hgemm_packs.generator.compile.pack_writer import SourceManifest
from hgemm_packs.pack.manifest import Row
from hgemm_packs.problem import ALIGNED, Problem, alignments_of, regime

HERE = Path(__file__).resolve().parent
KERNELS = HERE / "kernels"
PICKED = KERNELS / "problems.json"

#: One aligned problem and one unaligned of each; "decode" are problems of up to 16 rows of A that
#: are not tiny, whatever their regime.
KINDS = ("tiny", "decode", "deep-K", "skinny", "mid", "small-K")
DECODE_ROWS = 16
RULE = (
    "Of each kind, of the problems whose packed rows all begin at multiples of 16 bytes and of the "
    "others: the row of the table whose matmul takes most over the floor, hot. matmul is the "
    "row's kernel where it has one, else torch; the floor is that of benchmarks.publish.h200_page."
)


@dataclass(frozen=True, slots=True)
class Picked:
    """A problem, its kind, the name of the table's kernel and the times when it was picked."""

    kind: str
    problem: Problem
    kernel: str | None
    floor_us: float
    matmul_us: float
    torch_us: float

    @property
    def stem(self) -> str:
        """What names of its sources begin with."""
        p, kind = self.problem, self.kind.replace("-", "").lower()
        return f"{kind}_{p.m}x{p.n}x{p.k}_{p.layout}_{p.dtype}"


def kind_of(row: Row) -> str:
    found = regime(row.m, row.n, row.k)
    return "decode" if found != "tiny" and row.m <= DECODE_ROWS else found


def pick(source: SourceManifest) -> list[Picked]:
    """The problems of RULE, in the order of KINDS, the aligned one first."""
    from benchmarks.publish.h200_page import floor_us

    names = {kernel.id: kernel.name for kernel in source.kernels}
    furthest: dict[tuple[str, bool], tuple[float, Picked]] = {}
    for row in source.table:
        if row.epilogue != "none" or row.base != ALIGNED or not row.packed or row.batches > 1:
            continue
        problem = Problem(*row.key)
        takes = row.hot.us if row.kernel else row.hot.torch_us
        floor = floor_us(row.m, row.n, row.k)
        kind = kind_of(row), min(alignments_of(problem, ALIGNED)) == 16
        name = names[row.kernel] if row.kernel else None
        one = Picked(kind[0], problem, name, round(floor, 3), takes, row.hot.torch_us)
        if kind not in furthest or takes / floor > furthest[kind][0]:
            furthest[kind] = takes / floor, one
    return [furthest[kind, aligned][1] for kind in KINDS for aligned in (True, False)]


def write_picked(picked: Sequence[Picked]) -> None:
    problems = [
        {
            "kind": one.kind,
            "problem": pack_kernels.problem_values(one.problem),
            "kernel": one.kernel,
            "floor_us": one.floor_us,
            "matmul_us": one.matmul_us,
            "torch_us": one.torch_us,
        }
        for one in picked
    ]
    document = {"rule": RULE, "problems": problems}
    write_atomically(PICKED, (json.dumps(document, indent=1) + "\n").encode())


def read_picked() -> list[Picked]:
    return [
        Picked(**{**each, "problem": Problem(*each["problem"])})
        for each in json.loads(PICKED.read_text(encoding="utf-8"))["problems"]
    ]


def sources(one: Picked) -> list[Path]:
    """The sources that were written for a problem."""
    return sorted(p for p in KERNELS.glob("*.cu") if f"{p.stem}_".startswith(f"{one.stem}_"))
