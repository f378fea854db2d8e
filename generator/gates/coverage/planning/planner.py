"""Further problems for a kernel whose comparisons have outcomes that no tested problem had: sizes
are tried at powers of two, and where a comparison comes near its other outcome its turning point is
computed.

Beside each goes one with the shortest tails: what is lost of a size, eight columns say, is lost in
a tile that they fill. Called by `gate`; a trial says which outcomes came of a problem.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from hgemm_packs.generator.gates.coverage.launches import Sizes
from hgemm_packs.generator.gates.coverage.problems import (
    LARGE_BYTES,
    SMALL_BYTES,
    deep,
    extremes,
    ladder,
    make,
    memory,
    ring_of,
)
from hgemm_packs.generator.gates.coverage.program.machine import Endless
from hgemm_packs.generator.gates.coverage.program.slices import makers
from hgemm_packs.generator.gates.coverage.trial import Trial

ROUNDS: Final = 3  # of turning points: each may lead to comparisons that nobody had come to
MOST_VALUES: Final = 8  # of a size, where values of several are put together
MOST_K: Final = 1 << 15  # that a trial follows: K is a loop
CTAS: Final = 3  # of each problem that is tried

#: Outcomes that are still to be had.
Missing = Callable[[], Iterable[tuple[int, int]]]


def plan(trial: Trial, missing: Missing) -> list[Sizes]:
    """Problems that have outcomes of `missing`, as far as any is found; the trial has seen them."""
    fields = trial.fields
    wanted = set(missing())
    tried: set[Sizes] = set()
    points: dict[str, list[int]] = {"m": [], "n": [], "k": []}
    for start in ((*ladder(fields), *extremes(fields)), deep(fields)):
        fresh: list[Sizes] = list(start)
        for _ in range(ROUNDS):
            found = _try(trial, fresh, tried)
            left = {at for at, _ in missing()}
            fresh = list(_turning(fields, found, left, points))
            if not fresh:
                break
        if any(True for _ in missing()):
            _try(trial, list(_together(fields, points)), tried)
            _try(trial, list(_of_two(trial, missing)), tried)
        if not any(True for _ in missing()):
            break
    asked: dict[Sizes, None] = {}
    for at, outcome in sorted(wanted):
        met = trial.seen.get(at, {}).get(outcome)
        had = None if met is None else met.sizes
        if had is not None and had not in asked:
            asked[had] = None
            for other in _with_tails(fields, had):
                if trial.comes_to(other, at, outcome):
                    asked[other] = None
                    break
    return list(asked)


def _with_tails(fields: Mapping[str, Any], had: Sizes) -> Iterator[Sizes]:
    """A problem with tails of one row, few columns and few of K, of all sizes and then of fewer:
    one of them may decide. What fits beside others still does."""
    dims, (step, _) = fields["dims"], ring_of(fields)
    tiles = int(fields["grid"]["tile_m"]), int(fields["grid"]["tile_n"]), step
    short = [
        max(size // tile, 1) * tile + int(dims[dim]["multiple_of"])
        for dim, size, tile in zip("mnk", had[:3], tiles, strict=True)
    ]
    for kept in sorted(itertools.product((False, True), repeat=3), key=sum)[:-1]:
        shape = [
            one if keep else tail for one, tail, keep in zip(had[:3], short, kept, strict=True)
        ]
        for made in make(fields, [shape]):
            each = made._replace(batches=had.batches)
            if each != had and _costs_no_more(fields, had, each):
                yield each


def _costs_no_more(fields: Mapping[str, Any], had: Sizes, other: Sizes) -> bool:
    """Whether a problem is run where another is, in a trial and on a card."""
    for limit in (SMALL_BYTES, LARGE_BYTES):
        if memory(fields, had) <= limit:
            return memory(fields, other) <= limit and other.k <= max(had.k, MOST_K)
    return False


Gaps = Mapping[int, Mapping[Sizes, float]]


def _try(trial: Trial, problems: Sequence[Sizes], tried: set[Sizes]) -> Gaps:
    """Follow problems that were not, small ones first; how near each comparison came."""
    gaps: dict[int, dict[Sizes, float]] = {}
    fresh = [each for each in dict.fromkeys(problems) if each not in tried and each.k <= MOST_K]
    tried.update(fresh)
    small = [each for each in fresh if memory(trial.fields, each) <= SMALL_BYTES]
    large = [each for each in fresh if memory(trial.fields, each) > SMALL_BYTES]
    for group in (small, large):
        if group:
            with contextlib.suppress(Endless):
                trial.run(group, whole=True, ctas=CTAS, gaps=True)
            for at, known in (trial.machine.outcomes.gaps or {}).items():
                of = gaps.setdefault(at, {})
                of.update({group[i]: gap for i, gap in known.by_launch().items()})
    return gaps


def _turning(
    fields: Mapping[str, Any], gaps: Gaps, left: set[int], points: dict[str, list[int]]
) -> Iterator[Sizes]:
    """Problems at the turning points of comparisons: where a straight line through two that differ
    in one size comes to nought, and beside it."""
    for at in sorted(left & gaps.keys()):
        known = gaps[at]
        for i, dim in enumerate("mnk"):
            lines: dict[tuple[int, ...], list[tuple[int, float, Sizes]]] = {}
            for sizes, gap in known.items():
                rest = tuple(size for j, size in enumerate(sizes[:3]) if j != i)
                lines.setdefault(rest, []).append((getattr(sizes, dim), gap, sizes))
            for line in lines.values():
                yield from _roots(fields, sorted(line, key=lambda x: x[:2]), i, points[dim])


def _roots(
    fields: Mapping[str, Any], line: Sequence[tuple[int, float, Sizes]], dim: int, points: list[int]
) -> Iterator[Sizes]:
    step = int(fields["dims"]["mnk"[dim]]["multiple_of"])
    near = sorted(range(len(line)), key=lambda i: abs(line[i][1]))[:3]
    for i in near:
        for j in (i - 1, i + 1):
            if not 0 <= j < len(line) or line[i][1] == line[j][1]:
                continue
            (x, gap, sizes), (y, other, _) = line[i], line[j]
            root = x - gap * (y - x) / (other - gap)
            if not 0 <= root < 1 << 31:
                continue
            around = [int(root) // step * step + d * step for d in (-1, 0, 1, 2)]
            points += [each for each in around if each not in points]
            shapes = []
            for each in around:
                shape = list(sizes[:3])
                shape[dim] = each
                shapes.append(shape)
            yield from make(fields, shapes)


def _together(fields: Mapping[str, Any], points: Mapping[str, list[int]]) -> Iterator[Sizes]:
    """Problems of several such sizes at once, for what is decided by two of them."""
    rows, columns = int(fields["grid"]["tile_m"]), int(fields["grid"]["tile_n"])
    usual = {"m": [1, 2 * rows + 3], "n": [8, 2 * columns + 8], "k": [8, 264]}
    values = [[*usual[dim], *points[dim][:MOST_VALUES]] for dim in "mnk"]
    yield from make(fields, itertools.product(*values))


def _of_two(trial: Trial, missing: Missing) -> Iterator[Sizes]:
    """Problems with some sizes of one problem and some of another, where two comparisons had one by
    one what is wanted of both together."""
    made = makers(trial.kernel)
    for at, outcome in missing():
        ins = trial.kernel.instructions[at]
        if ins.opcode[0] not in ("and", "or"):
            continue
        names = [name for operand in ins.operands[1:] for name in operand.registers()]
        had = [
            trial.seen[each.index][outcome].sizes
            for name in names
            for each in made.get(name, ())
            if outcome in trial.seen.get(each.index, ())
        ]
        for one, other in itertools.combinations(dict.fromkeys(had), 2):
            mixed = itertools.product(*zip(one[:3], other[:3], strict=True))
            batches = max(one.batches, other.batches)
            yield from (each._replace(batches=batches) for each in make(trial.fields, mixed))
