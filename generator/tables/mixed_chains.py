"""The kernel that a row has for dependent launch, chosen by lines of `generate measure mixed`:
in chains in which other products run between the row's.

Called when a table is made, on rows that have the choice of chains of one kernel (`dependent`). It
chooses among kernels that are in the table for some row, so nothing is built for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import geometric_mean, median
from typing import Any

from hgemm_packs.generator.compile.pack_writer import SourceManifest
from hgemm_packs.generator.tables import published
from hgemm_packs.pack.manifest import Row

Line = Mapping[str, Any]

AROUND = ("regime", "all")
PLAIN = "plain"
#: The row's own kernel launched plainly over a candidate: less is noise.
LEAST_GAIN = 1.005
#: No kind of chain may lose what another gains.
LEAST_EACH = 0.99
#: Operations from which a row has no kernel for dependent launch unless it was measured: in chains
#: of one kernel such launches gained nothing (fp16 nn 1.081 for 1.083).
LARGE_FLOP = 2e10


def gains(line: Line) -> dict[str, float]:
    """By candidate, how much faster than the row's own kernel launched plainly, in the geometric
    mean of its chains; those that lose in one of them are not there."""
    found = {}
    for name in line[AROUND[0]].keys() - {"torch", PLAIN}:
        each = [_over(line[around], name) for around in AROUND]
        wrong = any(said.endswith(f" {name}") for said in line["wrong"])
        if not wrong and min(each) >= LEAST_EACH:
            found[name] = geometric_mean(each)
    return found


def _over(samples: Mapping[str, list[float]], name: str) -> float:
    return float(median(p / c for p, c in zip(samples[PLAIN], samples[name], strict=True)))


def choose_mixed_kernels(
    source: SourceManifest, lines: Iterable[Line], public: Sequence[Line] = ()
) -> SourceManifest:
    """`source` with the dependent kernels that the lines choose. A row without a line of its
    present kernels keeps its dependent kernel, unless the row is large. A kernel that was slow in
    the `public` lines is not chosen again; the next best is."""
    by_problem = {
        tuple(line["problem"]): line for line in lines if "problem" in line and "error" not in line
    }
    known = published.identities(source)
    ids = {kernel.name: kernel.id for kernel in source.kernels}
    _, slow = published.find_slow(public)

    def row_of(row: Row) -> Row:
        line = by_problem.get(row[:5])
        if row.kernel is None:
            return row
        if line is None or ids.get(line["kernel"]) != row.kernel:
            large = 2.0 * row.m * row.n * row.k >= LARGE_FLOP
            return row._replace(dependent=None) if large else row
        current = {
            name: gain
            for name, gain in gains(line).items()
            if name in ids
            and known[ids[name]] == line["identities"].get(name)
            and (row[:5], (known[row.kernel], known[ids[name]])) not in slow
        }
        best = max(current, key=lambda name: (current[name], name), default=None)
        if best is None or current[best] < LEAST_GAIN:
            return row._replace(dependent=None)
        return row._replace(dependent=ids[best])

    return published.replace_rows(source, [row_of(row) for row in source.table])
