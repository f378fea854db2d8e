"""The problems of the size gate: what every kernel is run on for its sizes alone, by the numeric
gate on a GPU and by a trial without one, and the larger ones that only a trial affords.

Called by `gate`, `planner` and the numeric gate. All follow from the launch record, so that both
gates mean the same problems.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from hgemm_packs.generator.families.base import SM_BYTES
from hgemm_packs.generator.gates.coverage.launches import (
    BYTES,
    LARGEST_GRID,
    LARGEST_GRID_Y,
    Sizes,
    columns_of,
    grid,
    stored,
    with_strides,
)
from hgemm_packs.generator.gates.dataflow.exceptions import is_of_family
from hgemm_packs.pack.manifest import GROUPED_LAYOUT, OF_BATCH

SMALL_BYTES: Final = 1 << 29  # of a problem that each kernel is run on
LARGE_BYTES: Final = 72 << 30  # of a problem that a card of 80 GB has room for
LARGEST_C: Final = 1 << 39  # elements, a TiB: more than any card holds
LARGEST_FOREIGN_C: Final = 1 << 35  # of a kernel of no family
FEW: Final = 32  # values of a size of which each is tested
LEAST_TURNS: Final = 12  # of a loop over K whose ring nobody knows
TURNS: Final = 34  # of the loop over K
MOST_K: Final = 1 << 15  # of a problem that each kernel is run on
ODD_DEPTH: Final = 14707  # K, not a multiple of 8, beyond the turns of any loop over few numbers
MANY: Final = 70  # tiles of a long side
SMS: Final = 132  # of the device that persistent grids are laid out for
#: Of an SM: CTAs and threads; and of its shared memory what each CTA takes beside its own.
SM_CTAS, SM_THREADS, OWN_BYTES = 32, 2048, 1024
WAVES: Final = 2.5  # tiles of a persistent grid, in multiples of its CTAs


def fit(rule: Mapping[str, int], value: int) -> int:
    """The next size from `value` on that a record admits, or its largest."""
    step = int(rule["multiple_of"])
    low, high = -(-int(rule["min"]) // step) * step, int(rule["max"]) // step * step
    return min(max(low, -(-value // step) * step), high)


def ring_of(fields: Mapping[str, Any]) -> tuple[int, int]:
    """(K of one step, K of one pass over the ring), over all CTAs that share K."""
    genome = fields["genome"]
    parts = int(fields["cluster"][2]) * int(fields["grid"].get("slices", 1))
    for gene in ("k_slice", "k"):
        if gene in genome:
            return int(genome[gene]) * parts, int(genome[gene]) * parts
    stages = int(genome.get("stages", 1))
    if "tile_k" in genome or "producers" in genome:
        step = int(genome.get("tile_k", 64)) * parts
        return step, stages * step
    of_one = 16 if fields.get("family") == "sm90_elements" else 32
    around = of_one * int(genome.get("warps_k", 1)) * int(genome.get("unroll", 1)) * parts
    return around, stages * around


def handed_on(fields: Mapping[str, Any]) -> int:
    """The least K below a ring with which a stage that one tile has left is the next one's that
    another takes, where two take tiles in turn; that of one step where there is none."""
    step, ring = ring_of(fields)
    stages = ring // step
    turns = (each for each in range(2, stages) if stages % each or stages // each % 2)
    return next(turns, 1) * step


def at_once(fields: Mapping[str, Any]) -> int:
    """The most CTAs of a kernel that a card runs at once."""
    room = SM_BYTES // (int(fields["smem_bytes"]) + OWN_BYTES)
    return SMS * max(1, min(SM_CTAS, SM_THREADS // int(fields["block"]), room))


def admitted(fields: Mapping[str, Any], sizes: Sizes) -> bool:
    """Whether the launcher takes a problem."""
    x, y = grid(fields, sizes, None)
    if x > LARGEST_GRID or y > LARGEST_GRID_Y:
        return False
    dims = fields["dims"]
    return all(fit(dims[dim], getattr(sizes, dim)) == getattr(sizes, dim) for dim in "mnk")


def memory(fields: Mapping[str, Any], sizes: Sizes) -> int:
    """Bytes of A, B and C with all that lies between their lines; groups and batches are packed."""
    columns = columns_of(fields, sizes.n)
    lines = stored(str(fields["layout"]), sizes.m, sizes.n, sizes.k, columns)
    packed = fields["param_layout"] in {GROUPED_LAYOUT, *OF_BATCH.values()}
    strides = [length for _, length in lines] if packed else sizes.strides
    elements = (count * stride for (count, _), stride in zip(lines, strides, strict=True))
    return sum(elements) * BYTES * sizes.batches


def by_memory(fields: Mapping[str, Any], problems: Iterable[Sizes]) -> dict[str, list[list[int]]]:
    """Problems for the numeric gate, as `named` reads them: those that fill a card are large."""
    found: dict[str, list[list[int]]] = {"planned": [], "large": []}
    for each in problems:
        name = "planned" if memory(fields, each) <= SMALL_BYTES else "large"
        found[name].append([*each[:3], *each.strides, each.align])
    return found


def named(fields: Mapping[str, Any], shapes: Iterable[Sequence[int]]) -> Iterator[Sizes]:
    """Problems of evidence, each once: M, N and K, the strides of A, B and C, and the alignment;
    or M, N and K alone, of which `make` chooses the rest."""
    for m, n, k, *more in dict.fromkeys(map(tuple, shapes)):
        if more:
            of_a, of_b, of_c, align = more
            yield Sizes(m, n, k, (of_a, of_b, of_c), align=align)
        else:
            yield from make(fields, [(m, n, k)])


def make(
    fields: Mapping[str, Any], shapes: Iterable[Sequence[int]], **more: Any
) -> Iterator[Sizes]:
    """Problems of these M, N and K as far as the record admits them, each once."""
    dims = fields["dims"]
    seen = set()
    for shape in shapes:
        fitted = tuple(fit(dims[dim], size) for dim, size in zip("mnk", shape, strict=True))
        sizes = with_strides(fields, *fitted, **more)
        if sizes not in seen and admitted(fields, sizes):
            seen.add(sizes)
            yield sizes


def tested(fields: Mapping[str, Any]) -> list[Sizes]:
    """What each kernel is run on: one row and many, one column and many, tails and none, K below,
    at and above a pass over the ring, few tiles and more than a wave of them."""
    rows, columns = int(fields["grid"]["tile_m"]), int(fields["grid"]["tile_n"])
    step, ring = ring_of(fields)
    shapes = [
        (1, 8, 8),
        (1, 3 * columns + 8, ring + 8),
        (1, columns, 4 * ring),
        (rows, columns, step),
        (rows, columns, 2 * ring),
        (rows + 3, columns + 8, 2 * ring + step + 8),
        (rows - 1, columns - 8, ring // 2 + 16),
        (2 * rows + 1, 2 * columns + 1, ring),
        (2 * rows - 1, 8, 3 * ring - step),
        (13, 8, 24),
        (37, 5 * columns + 24, step + 136),
        (7 * rows, 5 * columns, 200),
        (20 * rows + 5, 13 * columns + 16, ring + step + 8),
        (MANY * rows - 3, 3 * columns, 64),
        (3 * rows, MANY * columns - 8, 64),
        (MANY * rows, 16, step),
        (MANY * rows + 3, columns + 8, ring + step + 8),
        (rows + 3, MANY * columns + 8, ring + step + 8),
        (rows, 2 * columns, 4096),
    ]
    if fields["grid"].get("persistent"):
        ctas = SMS * max(2, int(fields["genome"].get("ctas_per_sm", 1)))
        side = int((WAVES * ctas) ** 0.5) + 1
        shapes += [
            (side * rows - 3, (side + 1) * columns - 8, 2 * step),
            (2 * ctas * rows, 8, step),
            (rows, int(WAVES * at_once(fields)) * columns, step),  # where M has few tiles
        ]
    shapes += [(rows, columns, ring + i * step + 8 * i) for i in range(1, 9)]
    shapes += [(5, columns + i, i * step - 8 * (i % 2)) for i in range(2, 10)]
    shapes += [(rows + 3, columns + 8, 1), (rows, columns, min(TURNS * step, MOST_K))]
    shapes += [(m, 3 * columns + 8, 2 * step) for m in few(fields["dims"]["m"])]
    if int(fields["dims"]["k"]["multiple_of"]) == 1:
        shapes += [(rows + 3, columns + 8, (16 << i) + 1) for i in range(6)]
        shapes += [(rows + 3, columns + 8, i * step + 1) for i in (1, 2)]
        shapes.append((rows + 3, columns + 8, ODD_DEPTH))
        for part, i in itertools.product((1, 3), (3, 7)):
            shapes.append((rows + 3, columns + 8, i * step + part * step // 5 + 3))
    small = [sizes for sizes in make(fields, shapes) if memory(fields, sizes) <= SMALL_BYTES]
    if all(int(fields["align"][name]) >= 16 for name in "abc"):
        return small
    small = [spread(fields, sizes, turn) for turn, sizes in enumerate(small)]
    for align in (4, 8, 16):
        small += make(fields, shapes[4:8], align=align)
    return [*small, *packed(fields)]


def spread(fields: Mapping[str, Any], sizes: Sizes, turn: int) -> Sizes:
    """A problem whose strides have the residues of 8 that come by turns, as far as alignments leave
    them open: a kernel may be right at some alone. In 64 turns any two operands have all pairs."""
    turns = turn + turn // 8, 2 * turn + turn // 8, turn
    of_a, of_b, of_c = (
        stride // 8 * 8 + int(fields["align"][name]) // BYTES * each % 8
        for stride, name, each in zip(sizes.strides, "abc", turns, strict=True)
    )
    return sizes._replace(strides=(of_a, of_b, of_c))


def packed(fields: Mapping[str, Any]) -> Iterator[Sizes]:
    """Problems as programs store them, with sides of each residue of 8: lines without padding, at
    addresses that nothing is wrong with."""
    columns, (step, _) = int(fields["grid"]["tile_n"]), ring_of(fields)
    for sizes in make(fields, [(8 + i, columns + i, step + i) for i in range(1, 9)], align=16):
        lines = stored(fields["layout"], *sizes[:3], columns_of(fields, sizes.n))
        of_a, of_b, of_c = (
            length if length * BYTES % int(fields["align"][name]) == 0 else stride
            for stride, (_, length), name in zip(sizes.strides, lines, "abc", strict=True)
        )
        yield sizes._replace(strides=(of_a, of_b, of_c))


def torn(fields: Mapping[str, Any]) -> list[Sizes]:
    """Problems whose addresses are as aligned as a record demands, and lines more, or the other way
    round. A trial alone asks for them."""
    if all(int(fields["align"][name]) >= 16 for name in "abc"):
        return []
    rows, columns = int(fields["grid"]["tile_m"]), int(fields["grid"]["tile_n"])
    shapes = [(rows, columns, 64), (rows + 3, columns + 8, 72)]
    plain = list(make(fields, shapes))
    found = []
    for align in (4, 8, 16):
        found += [each._replace(align=0) for each in make(fields, shapes, align=align)]
        found += [each._replace(align=align) for each in plain]
    return found


def few(rule: Mapping[str, int]) -> list[int]:
    """All values of a size that has few: then each of them is tested."""
    step = int(rule["multiple_of"])
    values = range(-(-int(rule["min"]) // step) * step, int(rule["max"]) + 1, step)
    return list(values) if len(values) <= FEW else []


def loops(fields: Mapping[str, Any], turns: int) -> tuple[list[Sizes], list[Sizes]]:
    """Problems of so many times a depth, and of so many times as many tiles."""
    rows, columns = int(fields["grid"]["tile_m"]), int(fields["grid"]["tile_n"])
    step, _ = ring_of(fields)
    slots = max(int(fields["genome"].get("stages", LEAST_TURNS)), 4)
    depths = [(turns * slots + i) * step for i in range(slots)]
    many = [((24 + i) * rows, 2 * turns * columns, step) for i in range(0, 12, 3)]
    many += [(3 * rows, (24 + i) * turns * columns, step) for i in range(3)]
    return (
        list(make(fields, [(rows + 3, columns + 8, depth) for depth in depths])),
        list(make(fields, [*many, (37 * turns * rows, 8, step)])),
    )


def extremes(fields: Mapping[str, Any]) -> list[Sizes]:
    """The largest problems of a record: 2^24 rows or columns, C beyond 2^31 elements and up to a
    TiB, so that tiles are as many as a record allows, strides beyond 2^27, of families beyond
    2^30. A trial needs no memory for them."""
    rows, columns = int(fields["grid"]["tile_m"]), int(fields["grid"]["tile_n"])
    most = 1 << 62
    elements = LARGEST_C if is_of_family(fields) else LARGEST_FOREIGN_C
    shapes = [
        (most, 8, 8),
        (8, most, 8),
        (8, columns * LARGEST_GRID_Y, 8),
        ((1 << 20) + 5, 4104, 8),
        (70001, 70008, 16),
        (rows * 4097, columns * 513, 8),
        (most, elements // int(fields["dims"]["m"]["max"]), 8),
        (elements // int(fields["dims"]["n"]["max"]), most, 8),
        (2056, 2120, 1032),  # so deep and so wide at once that either side may be taken for K
        (16, (1 << 19) - 8, 4136),  # lines of a deep operand that lie far apart
        ((1 << 19) - 8, 16, 4136),
    ]
    found = [*make(fields, shapes), *make(fields, [(300, 300, 72)], more=1 << 27)]
    found += make(fields, [(20, 24, 8), (16, 8, 40)], more=1 << 30)
    if is_of_family(fields):  # of a stranger's few lines at once nobody asks so much
        found += make(fields, [(300, 300, 72)], more=1 << 30)
    if "batched" in str(fields["param_layout"]):
        many = [(300, 300, 72), (5, 40, 72), (rows * 600, columns * 600, 8)]
        found += [each._replace(batches=5) for each in make(fields, many)]
        found += batches(fields)
    return found


def batches(fields: Mapping[str, Any]) -> Iterator[Sizes]:
    """Batches of 2^16 rows or columns, of both and of few, as many products as fill C or a quarter
    of a grid: the next tile but one of a CTA still has a number."""
    for one in make(fields, [(1 << 16, 8, 8), (8, 1 << 16, 8), (1 << 16, 1 << 16, 8), (8, 8, 8)]):
        x, _ = grid(fields, one, None)
        yield one._replace(batches=min(LARGEST_GRID // 4 // x, LARGEST_C // (one.m * one.n)))


def deep(fields: Mapping[str, Any]) -> list[Sizes]:
    """A deep K, which a trial follows to its end."""
    rows, columns = int(fields["grid"]["tile_m"]), int(fields["grid"]["tile_n"])
    return list(make(fields, [(rows + 3, columns + 8, (1 << 14) + 8)]))


def deepest(fields: Mapping[str, Any]) -> list[Sizes]:
    """The largest K: a trial follows its beginning."""
    rows, columns = int(fields["grid"]["tile_m"]), int(fields["grid"]["tile_n"])
    return list(make(fields, [(rows + 3, columns + 8, 1 << 62), (1, 8, 1 << 62)]))


def ladder(fields: Mapping[str, Any]) -> Iterator[Sizes]:
    """Problems with one size, or two, at each power of two and beside it."""
    rows, columns = int(fields["grid"]["tile_m"]), int(fields["grid"]["tile_n"])
    step, ring = ring_of(fields)
    steps = [int(fields["dims"][dim]["multiple_of"]) for dim in "mnk"]
    middle = (2 * rows + 3, 2 * columns + 8, ring + step)
    depth = max(1 << 10, 16 * step)
    for base, (dim, most) in itertools.product(
        (middle, (1, 8, 8)), enumerate((1 << 24, 1 << 24, depth))
    ):
        for power in range(most.bit_length()):
            shape = list(base)
            shape[dim] = (1 << power) + (power % 3 - 1) * steps[dim]
            yield from make(fields, [shape])
