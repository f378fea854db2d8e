"""The part of the numeric gate that chooses sizes: the problems on both sides of each comparison
that the size gate counts on, those that programs have, and those that fill a card.

`check_sizes` and `check_usual` are called by `numeric` for each kernel, `check_large` once a class
of kernels (`class_of`): what it needs is a card of 80 GB, and what it finds is wrong for all of
them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import torch

from hgemm_packs.generator.gates import rounding
from hgemm_packs.generator.gates.checker import (
    GUARD,
    GUARD_BITS,
    Checker,
    NumericError,
    Place,
    make_guarded_place,
    operand,
    size,
)
from hgemm_packs.generator.gates.coverage.launches import Sizes
from hgemm_packs.generator.gates.coverage.problems import (
    LARGE_BYTES,
    make,
    memory,
    named,
    ring_of,
    tested,
)
from hgemm_packs.pack.manifest import KernelEntry
from hgemm_packs.problem import columns_of

Shape = Sequence[int]

EXACT_FROM: Final = 1 << 13  # K whose last terms rounding may hide
DRAWN: Final = 10  # bytes of an element while it is drawn
ALIGNS: Final = (2, 4, 8, 16)  # bytes
CHUNK: Final = 1 << 28  # elements that are looked through at a time
SAMPLES: Final = 48  # rows of a batch or of groups that are computed again
COMPUTED: Final = 1 << 25  # elements that are computed again at a time
SIDE, SQUARES = 128, 3
#: Multiples of SIDE. All problems together take a GPU a tenth of a second, and a CPU, where the
#: gate's own tests run, as long.
SIDES: Final = {"cuda": 32, "cpu": 6}
FEW: Final = 64  # rows or columns of a decoder's batch


def fields_of(entry: KernelEntry) -> dict[str, Any]:
    """What the lists of problems read of a launch record, as a manifest has it."""
    return {
        "family": entry.family,
        "genome": entry.genome,
        "grid": {
            "tile_m": entry.grid.tile_m,
            "tile_n": entry.grid.tile_n,
            "persistent": entry.grid.persistent,
            "slices": entry.grid.slices,
        },
        "cluster": list(entry.cluster),
        "block": entry.block,
        "smem_bytes": entry.smem_bytes,
        "align": dict(zip("abc", entry.align, strict=True)),
        "dims": {dim: getattr(entry, dim)._asdict() for dim in "mnk"},
        "layout": entry.layout,
        "epilogue": entry.epilogue,
        "param_layout": entry.param_layout,
    }


def check_sizes(run: Checker, planned: Sequence[Shape] = ()) -> None:
    """The tested problems of the size gate, at each alignment that it asks for, and those that it
    planned for this kernel, with the strides of both; deep ones with sums that float32 holds
    exactly, too, for the bound of a rounded one has room for some of its terms. The largest error
    on record stays that of the other checks: of few elements rounding alone makes anything."""
    worst = run.result.max_rel_err
    fields = fields_of(run.entry)
    for sizes in [*tested(fields), *named(fields, planned)]:
        a, b = operands_of(run, sizes)
        run.keep(a, b)
        run.product("sizes", a, b, allowed=math.inf, into=place_of(run, sizes))
        run.settle()
        if sizes.k >= EXACT_FROM:
            a, b = (_signs(run, *each.shape) for each in (a, b))
            run.run("exact", *run.store(a, b), *run.expect_exact(a.double() @ b.double()))
            run.settle()
    run.result.max_rel_err = worst


def operands_of(run: Checker, sizes: Sizes) -> tuple[torch.Tensor, torch.Tensor]:
    """A and B of a problem, at the addresses and with the strides that it names; of fewer tiles
    where CTAs wait for each other. Nobody looks whether a launch changes them."""
    layout, (of_a, of_b, _) = run.entry.layout, _alignments(run, sizes)
    m, n = run.shape(sizes.m, sizes.n)
    a = operand(run.normal(m, sizes.k), layout[0] == "t", of_a, lead=sizes.strides[0])
    b = operand(run.normal(sizes.k, n), layout[1] == "t", of_b, lead=sizes.strides[1])
    return a, b


def place_of(run: Checker, sizes: Sizes) -> Place:
    """A fresh C of a problem, as its operands are."""
    m, n = run.shape(sizes.m, sizes.n)
    columns, align = columns_of(n, run.entry.epilogue), _alignments(run, sizes)[2]
    return make_guarded_place(m, columns, run.dtype, run.device, align, sizes.strides[2])


def _alignments(run: Checker, sizes: Sizes) -> list[int]:
    return [max(align, sizes.align) for align in run.entry.align]


def _signs(run: Checker, rows: int, columns: int) -> torch.Tensor:
    """Values -1, 0 and 1 [rows, columns], each as often."""
    shape, place = (rows, columns), run.device
    drawn = torch.randint(-1, 2, shape, generator=run.generator, device=place)
    return drawn.to(run.dtype)


def check_bases(run: Checker) -> None:
    """A, B and C each at every alignment that the record admits, whatever the others are at."""
    e, fields = run.entry, fields_of(run.entry)
    rows, columns = e.grid.tile_m, e.grid.tile_n
    at = [[each for each in ALIGNS if each >= least] for least in e.align]
    if all(len(each) == 1 for each in at):
        return
    for sizes in make(fields, [(rows + 3, columns + 8, sum(ring_of(fields)) + 8)]):
        m, n = run.shape(sizes.m, sizes.n)
        a, b = run.normal(m, sizes.k), run.normal(sizes.k, n)
        for of_a, of_b, of_c in itertools.product(*at):
            stored = run.store(a, b, (of_a, of_b))
            into = make_guarded_place(m, columns_of(n, e.epilogue), run.dtype, run.device, of_c)
            run.product("bases", *stored, into=into)
            run.settle()


def check_usual(run: Checker) -> None:
    """Sizes that programs have: each multiple of SIDE as M, as N and as K, with others that the
    gate's seed draws, squares, and few rows or columns of much else. Half of them are stored as
    programs store them: rows without padding, B right behind A. Other checks make one side long at
    a time: a path of its own for sizes that are large together, or between two sizes, or equal, is
    seen here."""
    for i, (m, n, k) in enumerate(draw(run)):
        m, n = run.shape(m, n)
        k = size(run.entry.k, k)
        a, b = run.normal(m, k), run.normal(k, n)
        together = i % 2 == 0 and not any(side % 8 for side in (m, n, k))
        stored = store_together(run, a, b) if together else run.store(a, b)
        into = pack_place(run, m, n) if together else None
        run.product("usual", *stored, into=into)
        run.settle()


def draw(run: Checker) -> Iterator[tuple[int, int, int]]:
    """M, N and K of all problems."""
    ms, ns, ks, squares = (_shuffle(run) for _ in range(4))
    yield from zip(ms, ns, ks, strict=True)
    yield from ((side, side, side) for side in squares[:SQUARES])
    few, wide, deep = _few(run)
    yield few, wide, deep
    few, high, deep = _few(run)
    yield high, few, deep


def _few(run: Checker) -> tuple[int, int, int]:
    """Up to FEW, and two sides of three quarters of the largest or a little more: of longer ones
    the bytes would be a fiftieth of the gate's."""
    count = SIDES[run.device.type]
    drawn = torch.rand(3, generator=run.generator, device=run.device).tolist()
    first, second = (SIDE * (count * 3 // 4 + int(3 * each)) for each in drawn[1:])
    return 1 + int(FEW * drawn[0]), first, second


def _shuffle(run: Checker) -> list[int]:
    count = SIDES[run.device.type]
    order = torch.randperm(count, generator=run.generator, device=run.device)
    return [SIDE * (place + 1) for place in order.tolist()]


def store_together(
    run: Checker, a: torch.Tensor, b: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Both in one buffer as the kernel's layout stores them, without padding, B right behind A."""
    turned = [letter == "t" for letter in run.entry.layout]
    lying = [x.t() if turn else x for x, turn in zip((a, b), turned, strict=True)]
    buffer = torch.cat([x.flatten() for x in lying])
    parts = buffer.split([x.numel() for x in lying])
    views = [part.view(x.shape) for part, x in zip(parts, lying, strict=True)]
    of_a, of_b = (x.t() if turn else x for x, turn in zip(views, turned, strict=True))
    run.keep(of_a)
    return of_a, of_b


def pack_place(run: Checker, m: int, n: int) -> Place:
    """A C between guards of whole rows, its own rows without padding."""
    columns = columns_of(n, run.entry.epilogue)
    shape = m + 2 * GUARD, columns
    bits = torch.full(shape, GUARD_BITS, dtype=torch.int16, device=run.device)
    return bits, bits.view(run.dtype)[GUARD : GUARD + m]


def class_of(fields: Mapping[str, Any]) -> tuple[Any, ...]:
    """What kernels have in common of which one is run on problems that fill a card: family, layout,
    type, epilogue, and all genes that are no numbers. Tile sides, depths of rings and parts of K
    are numbers: the size gate follows each kernel's addresses for itself."""
    genome = fields["genome"]
    choices = {gene: value for gene, value in genome.items() if not _is_number(value)}
    own = fields.get("name") if not genome else ""  # of no family: a class of its own
    record = fields["layout"], fields["dtype"], fields["epilogue"], fields["param_layout"]
    return (fields["family"], *record, own, *sorted(choices.items()))


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def large(fields: Mapping[str, Any]) -> Iterator[Sizes]:
    """C beyond 2^31 elements by rows and by columns, M beyond 2^20, K beyond 2^16, more than 2^20
    tiles, as far as the record admits them and a card has room."""
    rows, columns = int(fields["grid"]["tile_m"]), int(fields["grid"]["tile_n"])
    shapes = [
        ((1 << 20) + 5, 2056, 8),
        (8200, (1 << 18) + 264, 72),
        (rows + 3, columns + 8, (1 << 16) + 72),
        (rows * 2049, columns * 513, 8),
    ]
    for sizes in make(fields, shapes):
        added = sizes.m * sizes.n * DRAWN if fields["epilogue"] == "residual" else 0
        if memory(fields, sizes) + added <= LARGE_BYTES:
            yield sizes


def check_large(run: Checker, shapes: Sequence[Shape] | None = None) -> None:
    """Problems that fill a card, by default those of `large`, else those that evidence names: each
    element against float64, and nothing beyond C. Raises NumericError for the first failure."""
    fields = fields_of(run.entry)
    run.inputs = []
    for sizes in large(fields) if shapes is None else named(fields, shapes):
        a, b = operands_of(run, sizes)
        bits, c = place_of(run, sizes)
        run.queue(a, b, c)
        m, n = a.shape[0], b.shape[1]
        name = f"large {m}x{n}x{sizes.k}"
        check_written(name, bits, *c.shape)
        addend = run.addend(m, n)
        step = max(1, COMPUTED // n)
        for first in range(0, m, step):
            part = slice(first, first + step)
            added = addend[part] if addend is not None and addend.dim() > 1 else addend
            wrong = count_wrong(run, a[part], b, c[part], added)
            if wrong:
                raise NumericError(f"{name}: {wrong} elements wrong from row {first} on")


def pick(run: Checker, count: int) -> torch.Tensor:
    """Some of so many, the first and the last among them, each once."""
    picked = torch.randint(count, (SAMPLES,), generator=run.generator, device=run.device)
    ends = torch.tensor([0, count - 1], device=run.device)
    found: torch.Tensor = torch.cat([picked, ends]).unique()
    return found


def count_wrong(
    run: Checker, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, addend: torch.Tensor | None
) -> int:
    """Elements of C that are not a @ b with the addend, for a part of a problem, or of a batch."""
    wide_a, wide_b = a.double(), b.double()
    product, magnitude = wide_a @ wide_b, wide_a.abs() @ wide_b.abs()
    found = rounding.finish_exactly(run.entry, product, magnitude, a.shape[-1], addend)
    return int((~rounding.are_right(c, *found)).sum())


def check_written(name: str, bits: torch.Tensor, m: int, n: int) -> None:
    """Every element of C is written and no guard is."""
    step = max(1, CHUNK // bits.shape[1])
    unwritten = touched = 0
    for first in range(0, bits.shape[0], step):
        part = bits[first : first + step]
        there = part == GUARD_BITS
        low, high = max(GUARD - first, 0), min(GUARD + m - first, part.shape[0])
        inside = int(there[low:high, :n].sum()) if high > low else 0
        unwritten += inside
        of_c = max(high - low, 0) * n
        touched += part.numel() - of_c - (int(there.sum()) - inside)
    if unwritten or touched:
        raise NumericError(f"{name}: {unwritten} elements unwritten, {touched} guards touched")
