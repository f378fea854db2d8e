"""What the launcher makes of a problem: the grid, the parameters, and threads of some CTAs of it.

Twin of csrc/launcher/cuda/launch.c for the numbers that a kernel sees. Called by `trial`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from hgemm_packs.generator.families.base import ceil_div
from hgemm_packs.generator.families.computed import GATED
from hgemm_packs.generator.gates.coverage.program.arithmetic import Array
from hgemm_packs.generator.gates.coverage.program.registers import Threads
from hgemm_packs.generator.gates.dataflow.values import ADDENDS, ENDS, WORKSPACE, C
from hgemm_packs.pack.manifest import GROUPED_LAYOUT, MAPPED, PARAM_LAYOUTS

#: Where each piece of global memory begins, but for what aligns it: so far apart that no two meet.
APART: Final = 57
BASES: Final = {"A": 1, "B": 2, C: 3, ADDENDS: 4, WORKSPACE: 5, ENDS: 6}
LARGEST_GRID: Final = (1 << 31) - 1
LARGEST_GRID_Y: Final = (1 << 16) - 1
LARGEST_STRIDE: Final = (1 << 31) - 1
LEAST_APART: Final = 8  # elements between lines
BYTES: Final = 2  # an element
MOST_CTAS: Final = 8  # of a problem, where not all of a cluster are followed


class Sizes(NamedTuple):
    """A problem with the leading strides of A, B and C in elements, and the number of products of a
    batch, or of groups, which are at their `ends` where these are known. Addresses are multiples of
    `align` bytes and of no more, or of what the record declares where that is more."""

    m: int
    n: int
    k: int
    strides: tuple[int, int, int]
    batches: int = 1
    align: int = 0
    ends: tuple[int, ...] = ()

    @property
    def text(self) -> str:
        """In a verdict."""
        return f"{self.m}x{self.n}x{self.k}"


def ranks(fields: Mapping[str, Any]) -> int:
    """CTAs of a cluster."""
    return math.prod(int(side) for side in fields["cluster"])


class Launch(NamedTuple):
    """A problem with its grid and the CTAs of it that are followed."""

    sizes: Sizes
    grid: tuple[int, int]
    ctas: Sequence[tuple[int, int]]


def launch(fields: Mapping[str, Any], sizes: Sizes, most: int | None, ctas: int = 8) -> Launch:
    """A problem with the first, the last and the middle CTAs of its grid, `ctas` at most, and for
    more than that all of its first cluster and one of each slice; `most` as in `grid`."""
    x, y = grid(fields, sizes, most)
    together = ranks(fields)
    slices = int(fields["grid"].get("slices", 1))
    wanted = [
        0,
        x - 1,
        x // 2 // together * together,
        together - 1,
        x - together,
        1,
        x // max(slices, 1) - 1,
    ]
    along_x = [each for each in dict.fromkeys(wanted) if 0 <= each < x]
    along_y = list(dict.fromkeys((0, y - 1)))
    chosen = [(i, j) for i in along_x for j in along_y][:ctas]
    if ctas > MOST_CTAS:
        apart = max(x // max(slices, 1), 1)
        chosen += [(i, 0) for i in (*range(1, together), *range(apart, x, apart)) if i < x]
    return Launch(sizes, (x, y), list(dict.fromkeys(chosen)))


def stored(layout: str, m: int, n: int, k: int, columns: int) -> Sequence[tuple[int, int]]:
    """(lines, elements of a line) of A, B and C as they lie in memory."""
    a = (k, m) if layout[0] == "t" else (m, k)
    b = (n, k) if layout[1] == "t" else (k, n)
    return a, b, (m, columns)


def columns_of(fields: Mapping[str, Any], n: int) -> int:
    """Columns of C."""
    return n // 2 if fields.get("epilogue") == GATED else n


def with_strides(
    fields: Mapping[str, Any], m: int, n: int, k: int, more: int = LEAST_APART, align: int = 0
) -> Sizes:
    """A problem whose lines are `more` elements apart from one another, or as few more as the
    alignment takes, and those of B eight further: the numeric gate lays operands out so. Lines of
    operands that come as tensor maps are never far apart: no kernel is told of their strides."""
    lines = stored(str(fields["layout"]), m, n, k, columns_of(fields, n))
    mapped = MAPPED[str(fields["param_layout"])]
    strides = []
    for (_, length), name in zip(lines, "abc", strict=True):
        apart = max(int(fields["align"][name]), align) // BYTES % 8
        further = (LEAST_APART if name in mapped else more) + (8 if name == "b" else 0)
        stride = -(-length // 8) * 8 + further + apart
        strides.append(min(stride, LARGEST_STRIDE // 8 * 8 - 8 + apart))
    return Sizes(m, n, k, (strides[0], strides[1], strides[2]), 1, align)


def grid(fields: Mapping[str, Any], sizes: Sizes, most: int | None) -> tuple[int, int]:
    """CTAs along x and y. `most` is how many run at a time, which bounds a persistent grid; None
    for a device that runs all."""
    shape = fields["grid"]
    tile = int(shape["tile_m"]), int(shape["tile_n"])
    cluster = [int(side) for side in fields["cluster"]]
    rows, columns = (
        ceil_div(ceil_div(size, side), group) * group
        for size, side, group in zip((sizes.m, sizes.n), tile, cluster, strict=False)
    )
    if fields["param_layout"] == GROUPED_LAYOUT:  # each group may end with a tile of its own
        rows = sizes.m // tile[0] + min(sizes.m, sizes.batches)
        return _at_a_time(shape, rows * columns, most), 1
    flat = bool(MAPPED[str(fields["param_layout"])])
    x = rows * columns if flat else rows
    x *= cluster[2] * int(shape.get("slices", 1)) * sizes.batches
    return _at_a_time(shape, x, most), 1 if flat else columns


def _at_a_time(shape: Mapping[str, Any], ctas: int, most: int | None) -> int:
    return min(ctas, most) if shape.get("persistent") and most is not None else ctas


def base_of(fields: Mapping[str, Any], name: str, align: int) -> int:
    """The address of A, B, C or another piece of memory."""
    declared = int(fields["align"][name.lower()]) if name in ("A", "B", C) else 16
    return (BASES[name] << APART) + max(declared, align)


def threads(
    fields: Mapping[str, Any],
    params: Sequence[str],
    roles: Mapping[str, str],
    launches: Sequence[Launch],
) -> Threads:
    """All threads of the CTAs of several launches. A warp that is not full counts as 32."""
    block = int(fields["block"])
    whole = -(-block // 32) * 32
    if whole != block:
        block = whole
    of: list[int] = []
    x: list[int] = []
    y: list[int] = []
    for i, each in enumerate(launches):
        of += [i] * len(each.ctas)
        x += [cta[0] for cta in each.ctas]
        y += [cta[1] for cta in each.ctas]
    launch = np.repeat(np.array(of), block)
    count = launch.size
    tid = np.tile(np.arange(block, dtype=np.int32), len(of))
    ctaid_x, ctaid_y = (np.repeat(np.array(each, np.int32), block) for each in (x, y))

    def each_launch(values: Sequence[int], kind: type = np.int32) -> Array:
        wide: Array = np.array(values, np.int64).astype(kind)
        return wide[:1] if len(set(values)) == 1 else wide[launch]

    together = ranks(fields)
    grids = [each.grid for each in launches]
    zero, one = np.array([0], np.int32), np.array([1], np.int32)
    specials: dict[str, Array] = {
        "%tid.x": tid,
        "%laneid": tid & 31,
        "%warpid": tid >> 5,
        "%ntid.x": np.array([fields["block"]], np.int32),
        "%ctaid.x": ctaid_x,
        "%ctaid.y": ctaid_y,
        "%nctaid.x": each_launch([each[0] for each in grids]),
        "%nctaid.y": each_launch([each[1] for each in grids]),
        "%cluster_ctarank": ctaid_x % together,
        "%cluster_ctaid.x": ctaid_x % together,
        "%cluster_nctarank": np.array([together], np.int32),
        "%cluster_nctaid.x": np.array([together], np.int32),
        "%clusterid.x": ctaid_x // together,
        "%clusterid.y": ctaid_y,
        "%nclusterid.x": each_launch([each[0] // together for each in grids]),
        "%nclusterid.y": each_launch([each[1] for each in grids]),
        **dict.fromkeys(("%tid.y", "%tid.z", "%ctaid.z", "%cluster_ctaid.y"), zero),
        **dict.fromkeys(("%cluster_ctaid.z", "%clusterid.z"), zero),
        **dict.fromkeys(("%ntid.y", "%ntid.z", "%nctaid.z", "%nclusterid.z"), one),
        **dict.fromkeys(("%cluster_nctaid.y", "%cluster_nctaid.z"), one),
    }
    seen = {}
    numbers = _numbers(fields, [each.sizes for each in launches])
    for name, size in zip(params, PARAM_LAYOUTS[str(fields["param_layout"])], strict=True):
        role = roles.get(name)
        if size == 128:
            continue
        if role is not None:
            bases = [base_of(fields, role, each.sizes.align) for each in launches]
            seen[name] = each_launch(bases, np.int64)
        elif numbers:
            seen[name] = each_launch(numbers.pop(0))
    cta = np.repeat(np.arange(len(of)), block)
    ends = [each.sizes.ends for each in launches]
    if not any(ends):
        return Threads(count, specials, seen, launch, cta)
    longest = max(map(len, ends))
    padded = np.array([(*each, *[0] * (longest - len(each))) for each in ends], np.int32)
    at = np.array([base_of(fields, ENDS, each.sizes.align) for each in launches], np.int64)
    return Threads(count, specials, seen, launch, cta, padded, at)


def _numbers(fields: Mapping[str, Any], problems: Sequence[Sizes]) -> list[list[int]]:
    """Values of the parameters that are numbers, in their order, one a launch."""
    layout = str(fields["param_layout"])
    found = [[p.m for p in problems], [p.n for p in problems], [p.k for p in problems]]
    for i, name in enumerate("abc"):
        if name not in MAPPED[layout]:
            found.append([p.strides[i] for p in problems])
    if layout == GROUPED_LAYOUT or "batched" in layout:
        found.append([p.batches for p in problems])
    return found
