"""Numeric gate of batched kernels: against float64, over batches that lie in every way.

As `numeric` is for products, with its rounding model. All of C [batches, M, N] is NaN between
guards, what lies between the matrices of A and B is NaN, and inputs must not change. Runs on any
device; never times anything.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator, Sequence

import torch

from hgemm_packs.generator.gates.checker import (
    GUARD,
    GUARD_BITS,
    Checker,
    Launch,
    Numeric,
    NumericError,
    Place,
    size,
    sizes,
)
from hgemm_packs.generator.gates.numeric import ring_depth
from hgemm_packs.generator.gates.rounding import finish_exactly
from hgemm_packs.generator.gates.sizes import (
    COMPUTED,
    SAMPLES,
    Shape,
    check_written,
    count_wrong,
    pick,
)
from hgemm_packs.generator.gates.values import adapted
from hgemm_packs.measure.operands import DTYPES
from hgemm_packs.pack.manifest import KernelEntry
from hgemm_packs.problem import WITHOUT_ADDEND

#: How the matrices of an operand lie: one behind the other, with more memory between them, with
#: gaps behind their rows, or their rows in turn.
WAYS = ("packed", "apart", "with gaps", "in turn")
ONE = "one for all"
#: Products, M, N and K: each fills a part of a card of 80 GB. 2^24 is where float32 ends to count.
LARGE = (
    (70_001, 5, 40, 72),
    ((1 << 24) + 5, 1, 8, 8),
    (3, (1 << 15) + 5, (1 << 15) + 8, 8),
    (5, (1 << 15) + 5, 8, (1 << 14) + 8),
    (5, 8, (1 << 15) + 8, (1 << 14) + 8),
)
TWO = 2  # products, the least of a batch
MANY = 1030  # products, of which no device runs all at once


def place_at(way: str, stored: torch.Tensor) -> torch.Tensor:
    """`stored` [batches, outer, inner] in memory of its own that lies so, NaN where it has gaps."""
    batches, outer, inner = stored.shape
    if way == ONE:
        return stored[:1].clone().expand(batches, outer, inner)
    shape = {
        "packed": (batches, outer, inner),
        "apart": (batches, outer + 1, inner),
        "with gaps": (batches, outer, inner + 16),
        "in turn": (outer, batches, inner),
    }[way]
    memory = torch.full(shape, math.nan, dtype=stored.dtype, device=stored.device)
    memory = memory.transpose(0, 1) if way == "in turn" else memory
    return memory[:, :outer, :inner].copy_(stored)


class BatchedChecker:
    """Runs the checks of one kernel."""

    def __init__(self, entry: KernelEntry, launch: Launch, device: torch.device, seed: int) -> None:
        self.entry, self.launch, self.device = entry, launch, device
        self.checker = Checker(entry, launch, device, seed)

    def draw(
        self, batches: int, m: int, n: int, k: int, ways: tuple[str, str] = ("packed", "packed")
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """A [batches, M, K] and B [batches, K, N] as the kernel's layout stores them."""
        found = []
        for rows, columns, letter, way in zip((m, k), (k, n), self.entry.layout, ways, strict=True):
            outer, inner = (columns, rows) if letter == "t" else (rows, columns)
            drawn = self.checker.normal(batches * outer, inner).view(batches, outer, inner)
            placed = place_at(way, drawn)
            found.append(placed.mT if letter == "t" else placed)
        return found[0], found[1]

    def place(self, rows: int, n: int) -> Place:
        """A packed C of so many rows of guard bits, between guards."""
        bits = torch.full((rows + 2 * GUARD, n), GUARD_BITS, dtype=torch.int16, device=self.device)
        return bits, bits.view(self.checker.dtype)[GUARD : GUARD + rows]

    def queue(self, a: torch.Tensor, b: torch.Tensor, place: Place) -> None:
        """Launch once into all of C."""
        self.queue_by(self.launch, a, b, place)

    def queue_by(self, launch: Launch, a: torch.Tensor, b: torch.Tensor, place: Place) -> None:
        """The same by another arm of the kernel."""
        shape = (a.shape[0], a.shape[1], b.shape[2])
        addend = self.checker.addend(shape[0] * shape[1], shape[2])
        launch(a, b, place[1].view(shape), *(() if addend is None else (addend.view(shape),)))

    def judge(
        self,
        name: str,
        a: torch.Tensor,
        b: torch.Tensor,
        place: Place,
        before: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Queue the comparison of a launch; returns C."""
        batches, m, k = a.shape
        wide_a, wide_b = a.double(), b.double()
        product = (wide_a @ wide_b).flatten(0, 1)
        magnitude = (wide_a.abs() @ wide_b.abs()).flatten(0, 1)
        addend = self.checker.addend(*product.shape)
        exact, off = finish_exactly(self.entry, product, magnitude, k, addend)
        rows = torch.empty((batches * m, k), device="meta")  # for its sizes
        case = f"{name}, {batches} products of"
        self.checker.judge(case, rows, b[0], place, exact, off, before=before)
        return place[1]

    def run(self, name: str, a: torch.Tensor, b: torch.Tensor, runs: int = 1) -> None:
        """Launch `runs` times and queue the comparisons: every bit is the same."""
        self.checker.keep(a, b)
        before = None
        for _ in range(runs):
            place = self.place(a.shape[0] * a.shape[1], b.shape[2])
            self.queue(a, b, place)
            before = self.judge(name, a, b, place, before)

    def size(self, m: int, n: int, k: int) -> tuple[int, int, int]:
        """Sizes that the kernel admits, from these on."""
        e = self.entry
        return size(e.m, m), size(e.n, n), size(e.k, k)


def check_ways(run: BatchedChecker) -> None:
    """Operands in every way, with a part of a tile at each side and of a k-tile."""
    grid = run.entry.grid
    m, n, k = run.size(grid.tile_m + 3, grid.tile_n + 8, 136)
    for way in WAYS:
        for other in WAYS:
            run.run(f"A {way}, B {other}", *run.draw(3, m, n, k, (way, other)), runs=2)


def check_one_for_all(run: BatchedChecker) -> None:
    """One matrix for all products. A driver may make no map of that: then no kernel gets it."""
    grid = run.entry.grid
    m, n, k = run.size(grid.tile_m + 3, grid.tile_n + 8, 136)
    for ways in ((ONE, "packed"), ("in turn", ONE)):
        operands = run.draw(4, m, n, k, ways)
        with contextlib.suppress(ValueError):
            run.run(f"A {ways[0]}, B {ways[1]}", *operands)


def check_sizes(run: BatchedChecker) -> None:
    """M and N in steps round tiles, K round the ring and deep."""
    e = run.entry
    tile_m, tile_n, ring = e.grid.tile_m, e.grid.tile_n, ring_depth(e)
    for m in sizes(e.m, (1, 2, 7, tile_m - 1, tile_m, tile_m + 1, 2 * tile_m, 3 * tile_m + 5)):
        for n in sizes(e.n, (8, tile_n - 8, tile_n, 2 * tile_n + 24)):
            run.run(f"M {m}, N {n}", *run.draw(2, m, n, size(e.k, 72)))
    m, n, _ = run.size(tile_m + 3, tile_n + 8, 8)
    for k in sizes(e.k, (8, 16, 64, 72, ring - 8, ring, ring + 8, 2 * ring + 64, 4096)):
        run.run(f"K {k}", *run.draw(3, m, n, k))


def check_planned(run: BatchedChecker, planned: Sequence[Shape]) -> None:
    """Problems in which each comparison of sizes goes each way, as two products."""
    for m, n, k, *_ in planned:
        run.run(f"M {m}, N {n}, K {k}", *run.draw(TWO, m, n, k))
        run.checker.settle()


def check_many(run: BatchedChecker) -> None:
    """More products than CTAs, of a tile each and of several."""
    e = run.entry
    run.run("many products", *run.draw(MANY, *run.size(1, 8, 72)), runs=2)
    m, n, k = run.size(e.grid.tile_m + 1, e.grid.tile_n + 8, 136)
    run.run("many tiles", *run.draw(150, m, n, k), runs=2)
    m, n, k = run.size(5 * e.grid.tile_m + 3, 7 * e.grid.tile_n + 8, ring_depth(e) + 8)
    run.run("large products", *run.draw(3, m, n, k, ("in turn", "packed")), runs=2)


def check_neighbours(run: BatchedChecker) -> None:
    """NaN and infinities in one product reach no other: what a tile's boxes bring from beyond its
    matrix is zero."""
    grid = run.entry.grid
    m, n, k = run.size(grid.tile_m + 3, grid.tile_n + 8, 72)
    for way in ("packed", "in turn"):
        a, b = run.draw(4, m, n, k, (way, way))
        a[1], b[3] = math.nan, math.inf
        run.run(f"neighbours {way}", a, b)
        a, b = run.draw(4, m, n, k, (way, way))
        a[1, -1], a[2, 0], b[0, :, -1], b[2, 0] = math.nan, math.inf, math.nan, math.inf
        run.run(f"edges {way}", a, b)


def check_replay(run: BatchedChecker) -> None:
    """A captured launch reads what is there when it is replayed."""
    if run.device.type != "cuda":
        return
    grid = run.entry.grid
    m, n, k = run.size(grid.tile_m + 3, grid.tile_n + 8, 136)
    a, b = run.draw(5, m, n, k)
    place = run.place(5 * m, n)
    run.queue(a, b, place)  # what a first launch loads
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run.queue(a, b, place)
    for turn in range(2):
        for each, fresh in zip((a, b), run.draw(5, m, n, k), strict=True):
            each.copy_(fresh)
        run.checker.keep(a, b)
        place[0].fill_(GUARD_BITS)
        graph.replay()
        run.judge(f"replay {turn}", a, b, place)
        run.checker.settle()


def check_large(run: BatchedChecker, cases: Iterable[Sequence[int]] | None = None) -> None:
    """Batches that fill a card, by default with C, A and B beyond 2^31 elements, or of more than
    2^16 and 2^24 products; rows of each product against float64, all where these are few, every
    element written and nothing beyond C."""
    for case in LARGE if cases is None else cases:
        batches, m, n, k = case[0], *run.size(case[1], case[2], case[3])
        a, b = run.draw(batches, m, n, k)
        bits, c = run.place(batches * m, n)
        run.queue(a, b, (bits, c))
        name = f"large, {batches} products of {m}x{n}x{k}"
        check_written(name, bits, batches * m, n)
        addend, c = run.checker.addend(batches * m, n), c.view(batches, m, n)
        added = None if addend is None else addend.view(batches, m, n)
        step = max(1, COMPUTED // (n * k + min(m, SAMPLES) * (n + k)))
        wrong = 0
        for first in range(0, batches, step):
            some = slice(first, first + step)
            rows = torch.arange(m, device=run.device) if m <= SAMPLES else pick(run.checker, m)
            of_some = None if added is None else added[some][:, rows]
            operands = a[some][:, rows], b[some], c[some][:, rows]
            wrong += count_wrong(run.checker, *operands, of_some)
        if wrong:
            raise NumericError(f"{name}: {wrong} elements wrong in some rows")


def check(
    entry: KernelEntry,
    launch: Launch,
    device: torch.device,
    seed: int,
    planned: Sequence[Shape] = (),
    large: Sequence[Shape] = (),
    fewer: Sequence[Launch] = (),
) -> Numeric:
    """All checks of one batched kernel; `launch` takes (a, b, c), and the addend if there is one.
    Raises NumericError for the first that fails. `planned` and `large` are problems that the size
    gate asks for, of which M, N and K count; `fewer` is the kernel as on devices that run fewer
    CTAs at once."""
    run = BatchedChecker(entry, launch, device, seed)
    for one in (
        check_ways,
        check_one_for_all,
        check_sizes,
        check_many,
        check_neighbours,
        check_replay,
    ):
        one(run)
        run.checker.settle()
    for arm in fewer:
        within = BatchedChecker(entry, arm, device, seed)
        check_many(within)
        within.checker.settle()
    check_planned(run, planned)
    check_large(run, [(TWO, *shape[:3]) for shape in large])
    adapted.check(entry, adapted.of_batch(entry, launch), device, seed, run.checker.result)
    return run.checker.result


def run_small(entry: KernelEntry, launch: Launch, device: str, seed: int) -> Iterator[float]:
    """What the sanitizer watches: two batches over partial tiles, with the ring wrapping twice in
    the second. Gives the relative error of each; operands end where their memory does."""
    source = torch.Generator().manual_seed(seed)
    dtype = DTYPES[entry.dtype]

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=source).to(dtype)

    for batches, m, n, k in (
        (3, size(entry.m, 5), size(entry.n, entry.grid.tile_n - 8), size(entry.k, 72)),
        (
            2,
            size(entry.m, entry.grid.tile_m + 2),
            size(entry.n, entry.grid.tile_n + 8),
            size(entry.k, 3 * ring_depth(entry) + 72),
        ),
    ):
        of_a, of_b = (letter == "t" for letter in entry.layout)
        a = draw(batches, k, m).mT if of_a else draw(batches, m, k)
        b = draw(batches, n, k).mT if of_b else draw(batches, k, n)
        there = [(x.mT.to(device).mT if y else x.to(device)) for x, y in ((a, of_a), (b, of_b))]
        exact = a.double() @ b.double()
        c = torch.empty((batches, m, n), dtype=dtype, device=device)
        if any(one.operand == "c" for one in entry.tma):  # initcheck follows no bulk stores
            c = torch.full((batches, m, n), math.nan, dtype=dtype).to(device)
        added = []
        if entry.epilogue not in WITHOUT_ADDEND:
            addend = draw(batches, m, n)
            exact, added = exact + addend.double(), [addend.to(device)]
        launch(*there, c, *added)
        yield float((c.cpu().double() - exact).norm() / exact.norm())
