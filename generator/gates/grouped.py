"""Numeric gate of grouped kernels: against float64, over random and hostile splits into groups.

As `numeric` is for products, with its rounding model. C is NaN between guards, rows past the last
group are guards, too, and inputs must not change. Runs on any device; never times anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch

from hgemm_packs.generator.gates.checker import (
    GUARD,
    GUARD_BITS,
    Checker,
    Numeric,
    NumericError,
    size,
)
from hgemm_packs.generator.gates.coverage import lists
from hgemm_packs.generator.gates.numeric import ring_depth
from hgemm_packs.generator.gates.rounding import finish_exactly
from hgemm_packs.generator.gates.sizes import Shape, check_written, count_wrong, fields_of, pick
from hgemm_packs.generator.gates.values import adapted
from hgemm_packs.generator.gates.values.adapted import GroupedLaunch
from hgemm_packs.measure.operands import DTYPES
from hgemm_packs.pack.manifest import MAX_GROUPS, KernelEntry

Ends = Sequence[int]
#: Groups, rows, N and K: each fills a part of a card of 80 GB.
LARGE = (
    (5, (1 << 20) + 5, 2056, 8),
    (5, (1 << 20) + 5, 8, 2056),
    (MAX_GROUPS, 3001, 2056, 2056),
)


def splits(tile: int, rows: int, random: torch.Tensor) -> Iterator[tuple[str, list[int]]]:
    """Ends of groups over about `rows` rows, with a name; `random` holds numbers from 0 to 1."""
    cuts = sorted((random * rows).long().tolist())
    yield "random groups", [*cuts, rows]
    yield "one group has all", [0, 0, rows, rows]
    yield "the last group has all", [0] * 33 + [rows]
    yield "no rows in any group", [0] * 7
    yield "one row each", list(range(1, 41))
    yield (
        "tiles full, and one more or less",
        running([tile, tile + 1, 0, tile - 1, 2 * tile, 0, 0, 3 * tile + 5, 1]),
    )
    yield "rows past the last group", running([3, 0, tile + 2, 5])


def running(sizes: Iterable[int]) -> list[int]:
    """Ends of groups of these sizes."""
    ends, end = [], 0
    for each in sizes:
        end += each
        ends.append(end)
    return ends


def by_length(ends: Ends) -> dict[int, dict[int, int]]:
    """Groups with rows and where each begins, by how many rows they have."""
    found: dict[int, dict[int, int]] = {}
    start = 0
    for group, end in enumerate(ends):
        if end > start:
            found.setdefault(end - start, {})[group] = start
        start = end
    return found


class GroupedChecker:
    """Runs the checks of one kernel."""

    def __init__(
        self, entry: KernelEntry, launch: GroupedLaunch, device: torch.device, seed: int
    ) -> None:
        self.entry, self.launch, self.device = entry, launch, device
        self.checker = Checker(entry, lambda a, b, c: None, device, seed)

    def operands(self, rows: int, groups: int, n: int, k: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Tokens [rows, k] and weights [groups, k, n] as the kernel's layout stores them."""
        tokens = self.checker.normal(rows, k)
        if self.entry.layout == "nn":
            return tokens, self.checker.normal(groups * k, n).view(groups, k, n)
        return tokens, self.checker.normal(groups * n, k).view(groups, n, k).mT

    def place(self, rows: int, n: int) -> tuple[torch.Tensor, torch.Tensor]:
        """A packed C [rows, n] of guard bits between guards."""
        shape = (rows + 2 * GUARD, n)
        bits = torch.full(shape, GUARD_BITS, dtype=torch.int16, device=self.device)
        return bits, bits.view(self.checker.dtype)[GUARD : GUARD + rows]

    def expect(
        self, tokens: torch.Tensor, weights: torch.Tensor, ends: Ends
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """What C is to be up to the last end, and what rounding may add. Groups of as many rows are
        multiplied at once: there may be hundreds."""
        shape = ends[-1], weights.shape[2]
        exact, off = (torch.empty(shape, dtype=torch.float64, device=self.device) for _ in "12")
        for length, starts in by_length(ends).items():
            groups = torch.tensor([*starts], device=self.device)
            first = torch.tensor([*starts.values()], device=self.device)
            rows = first[:, None] + torch.arange(length, device=self.device)
            a, b = tokens[rows].double(), weights[groups].double()
            product, magnitude = (x.flatten(0, 1) for x in (a @ b, a.abs() @ b.abs()))
            found = finish_exactly(self.entry, product, magnitude, tokens.shape[1], None)
            exact[rows.flatten()], off[rows.flatten()] = found
        return exact, off

    def run(
        self,
        name: str,
        tokens: torch.Tensor,
        weights: torch.Tensor,
        ends: Ends,
        runs: int = 1,
        said: Ends | None = None,
    ) -> None:
        """Launch `runs` times and queue the comparison; `said` are the ends that the kernel is
        told, where they are others than those that it must obey."""
        rows, n = tokens.shape[0], weights.shape[2]
        self.checker.keep(tokens, weights)
        told = torch.tensor(said or ends, dtype=torch.int32, device=self.device)
        before = None
        for _ in range(runs):
            bits, c = self.place(rows, n)
            self.launch(tokens, weights, told, c)
            before = self.judge(name, tokens, weights, ends, bits, before)

    def judge(
        self,
        name: str,
        tokens: torch.Tensor,
        weights: torch.Tensor,
        ends: Ends,
        bits: torch.Tensor,
        before: torch.Tensor | None = None,
    ) -> torch.Tensor | None:
        """Queue the comparison of a launch; returns C up to the last end."""
        last = ends[-1]
        if not last:
            if bool((bits != GUARD_BITS).any()):
                raise NumericError(f"{name}: rows of no group are written")
            return None
        c = bits.view(self.checker.dtype)[GUARD : GUARD + last]
        exact, off = self.expect(tokens, weights, ends)
        case = f"{name}, {len(ends)} groups"
        place = (bits, c)
        self.checker.judge(case, tokens[:last], weights[0], place, exact, off, before=before)
        return c


def check_large(run: GroupedChecker, cases: Iterable[Sequence[int]] | None = None) -> None:
    """Groups that fill a card, by default with C, tokens and weights beyond 2^31 elements; some
    rows against float64, every row of a group written and nothing beyond."""
    e = run.entry
    for groups, rows, n, k in LARGE if cases is None else cases:
        m, n, k = size(e.m, rows), size(e.n, n), size(e.k, k)
        tokens, weights = run.operands(m, groups, n, k)
        step = m // groups
        ends = [*(i * step + i % 3 for i in range(1, groups)), m - 3]
        told = torch.tensor(ends, dtype=torch.int32, device=run.device)
        bits, c = run.place(m, n)
        run.launch(tokens, weights, told, c)
        name = f"large, {groups} groups of {m}x{n}x{k}"
        check_written(name, bits, ends[-1], n)
        picked = pick(run.checker, ends[-1])
        of_row = torch.searchsorted(told, picked, right=True)
        wrong = 0
        for group in of_row.unique().tolist():
            here = picked[of_row == group]
            wrong += count_wrong(run.checker, tokens[here], weights[group], c[here], None)
        if wrong:
            raise NumericError(f"{name}: {wrong} elements wrong in {len(picked)} rows")


def check_splits(run: GroupedChecker) -> None:
    """Every split, at a depth with a part of a k-tile, twice: every bit is the same."""
    tile, n, k = run.entry.grid.tile_m, run.entry.grid.tile_n + 8, 136
    random = torch.rand(12, generator=run.checker.generator, device=run.device).cpu()
    for rows in (1, tile + 3, 5 * tile + 7):
        for name, ends in splits(tile, rows, random):
            operands = run.operands(max(1, ends[-1] + 4), len(ends), n, k)
            run.run(name, *operands, ends, runs=2)


def check_sizes(run: GroupedChecker) -> None:
    """N in steps round tiles, K round the ring and deep."""
    e = run.entry
    tile, ring = e.grid.tile_m, ring_depth(e)
    ends = running([tile + 1, 0, 3, 2 * tile])
    for n in (8, e.grid.tile_n - 8, e.grid.tile_n, 3 * e.grid.tile_n + 24):
        run.run(f"N {n}", *run.operands(ends[-1], 4, n, 72), ends)
    depths = {8, 16, 64, 72, ring - 8, ring, ring + 8, 2 * ring + 64, 7168}
    for k in sorted(depth for depth in depths if depth > 0):
        run.run(f"K {k}", *run.operands(ends[-1], 4, e.grid.tile_n + 8, k), ends)


def check_planned(run: GroupedChecker, planned: Sequence[Shape]) -> None:
    """Problems in which each comparison of sizes goes each way, in three groups, one empty."""
    for m, n, k, *_ in planned:
        ends = running([m // 3, 0, m - m // 3])
        run.run(f"M {m}, N {n}, K {k}", *run.operands(m, len(ends), n, k), ends)
        run.checker.settle()


def check_lists(run: GroupedChecker) -> None:
    """The problems of which the size gate has seen what a list of groups decides, but those whose
    ends fall or lie outside the tokens: of them no rows are asked for."""
    for sizes in lists.problems(fields_of(run.entry)):
        m, n, k = sizes[:3]
        if [*sizes.ends] == sorted(sizes.ends) and sizes.ends[0] >= 0 and sizes.ends[-1] <= m:
            run.run(f"list of N {n}, K {k}", *run.operands(m, sizes.batches, n, k), sizes.ends)
            run.checker.settle()


def check_many(run: GroupedChecker) -> None:
    """As many groups as a kernel takes, most of them empty and then none, so that its list of them
    is full; and many more tiles than CTAs."""
    sizes = [(each * 37 % 11) // 8 for each in range(MAX_GROUPS)]
    ends = running(sizes)
    run.run("many groups", *run.operands(ends[-1], MAX_GROUPS, 64, 72), ends, runs=2)
    ends = running([1] * MAX_GROUPS)
    run.run("a row in every group", *run.operands(ends[-1], MAX_GROUPS, 8, 8), ends)
    tile = run.entry.grid.tile_m
    ends = running([(each * 29 % 7) * tile // 2 + each % 3 for each in range(48)])
    n = 9 * run.entry.grid.tile_n + 8
    run.run("many tiles", *run.operands(ends[-1], 48, n, 264), ends, runs=2)


def check_neighbours(run: GroupedChecker) -> None:
    """NaN in a weight that no row meets, and in rows of no group, reaches nothing: a tile's boxes
    bring no values of a neighbour that count."""
    tile, n, k = run.entry.grid.tile_m, run.entry.grid.tile_n + 8, 136
    ends = running([tile + 3, 0, 5, 0])
    tokens, weights = run.operands(ends[-1] + tile, 4, n, k)
    weights[1], weights[3], tokens[ends[-1] :] = torch.nan, torch.nan, torch.inf
    run.run("neighbours", tokens, weights, ends)
    tokens, weights = run.operands(ends[-1], 4, n, k)
    tokens[0], tokens[tile + 4] = torch.nan, torch.inf
    run.run("a row of NaN", tokens, weights, ends)


def check_ends(run: GroupedChecker) -> None:
    """Ends outside 0..T count as 0 and T; of ends that fall only the guards are looked at."""
    tile, n, k = run.entry.grid.tile_m, run.entry.grid.tile_n + 8, 136
    rows = 2 * tile + 9
    tokens, weights = run.operands(rows, 5, n, k)
    far = 2**31 - 1
    run.run(
        "ends outside", tokens, weights, [0, 5, 5, rows, rows], said=[-far, 5, 5, rows + 1, far]
    )
    run.checker.settle()
    bits, c = run.place(rows, n)
    told = torch.tensor([rows, 3, far, -5, tile], dtype=torch.int32, device=run.device)
    run.launch(tokens, weights, told, c)
    inside = bits[GUARD : GUARD + rows]
    if int((bits != GUARD_BITS).sum()) > int((inside != GUARD_BITS).sum()):
        raise NumericError("ends that fall: guards touched")


def check_replay(run: GroupedChecker) -> None:
    """A captured launch reads the ends of the moment in which it is replayed."""
    if run.device.type != "cuda":
        return
    tile, n, k = run.entry.grid.tile_m, run.entry.grid.tile_n + 8, 136
    rows = 2 * tile + 9
    tokens, weights = run.operands(rows, 5, n, k)
    ends = torch.zeros(5, dtype=torch.int32, device=run.device)
    bits, c = run.place(rows, n)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run.launch(tokens, weights, ends, c)
    run.checker.keep(tokens, weights)
    for split in ([1, 2, 3, 4, 5], [0, rows, rows, rows, rows], [tile, tile, tile + 1, rows, rows]):
        bits.fill_(GUARD_BITS)
        ends.copy_(torch.tensor(split, dtype=torch.int32))
        graph.replay()
        run.judge("replay", tokens, weights, split, bits)
        run.checker.settle()


def check(
    entry: KernelEntry,
    launch: GroupedLaunch,
    device: torch.device,
    seed: int,
    planned: Sequence[Shape] = (),
    large: Sequence[Shape] = (),
    fewer: Sequence[GroupedLaunch] = (),
) -> Numeric:
    """All checks of one grouped kernel. Raises NumericError for the first that fails. `planned` and
    `large` are problems that the size gate asks for, of which M, N and K count; `fewer` is the
    kernel as on devices that run fewer CTAs at once."""
    run = GroupedChecker(entry, launch, device, seed)
    for one in (
        check_splits,
        check_sizes,
        check_lists,
        check_many,
        check_neighbours,
        check_ends,
        check_replay,
    ):
        one(run)
        run.checker.settle()
    for arm in fewer:
        within = GroupedChecker(entry, arm, device, seed)
        check_many(within)
        within.checker.settle()
    check_planned(run, planned)
    check_large(run, [(1, *shape[:3]) for shape in large])
    adapted.check(entry, adapted.of_groups(entry, launch), device, seed, run.checker.result)
    return run.checker.result


def run_small(entry: KernelEntry, launch: GroupedLaunch, device: str, seed: int) -> Iterator[float]:
    """What the sanitizer watches: two splits over partial tiles, with the ring wrapping twice in
    the second. Gives the relative error of each; operands end where their memory does."""
    tile, source = entry.grid.tile_m, torch.Generator().manual_seed(seed)
    dtype = DTYPES[entry.dtype]
    for n, k, sizes in (
        (entry.grid.tile_n - 8, 72, [5, 0, tile + 2]),
        (entry.grid.tile_n + 8, 3 * ring_depth(entry) + 72, [0, 2 * tile - 3, 1, 0]),
    ):
        ends = running(sizes)
        tokens = torch.randn(ends[-1], k, generator=source).to(dtype)
        shape = (len(ends), k, n) if entry.layout == "nn" else (len(ends), n, k)
        stored = torch.randn(shape, generator=source).to(dtype)
        told = torch.tensor(ends, dtype=torch.int32)
        c = torch.empty((ends[-1], n), dtype=dtype, device=device)
        there = stored.to(device)
        launch(tokens.to(device), there if entry.layout == "nn" else there.mT, told.to(device), c)
        weights = stored if entry.layout == "nn" else stored.mT
        exact = torch.cat(
            [
                tokens[end - size : end].double() @ weight.double()
                for weight, end, size in zip(weights, ends, sizes, strict=True)
            ]
        )
        yield float((c.cpu().double() - exact).norm() / exact.norm())
