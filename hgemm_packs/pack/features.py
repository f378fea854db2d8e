"""What the trees of a predictor may look at, and the numbers of a kernel that it is computed from.

C computes the values (csrc/launcher/feature_values.c), for choosing and for fitting: a test holds
the names here to those there. The generator describes kernels by `numbers_of` when it fits, the
reader of packs when it holds a predictor against the kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

#: Of a problem alone; the model of torch sees no others.
OF_PROBLEM = (
    *("log2_m", "log2_n", "log2_k", "log2_flop", "log2_bytes", "log2_floor"),
    *("log2_mn", "log2_m_over_n", "log2_k_over_side", "log2_intensity"),
    *("a_transposed", "b_transposed", "bf16"),
    *("log2_row_bytes", "log2_a_bytes", "log2_b_bytes", "log2_c_bytes"),
    *("fill_m_64", "fill_n_64"),
    *("use_64x128", "use_128x128", "use_128x256", "use_256x128"),
)
#: Of a kernel on a problem.
OF_KERNEL = (
    *("family", "tile_m", "tile_n", "tile_k", "stages", "cluster_m", "cluster_n", "parts_of_k"),
    *("slices", "persistent", "threads", "ctas_per_sm", "log2_ctas", "waves", "wave_use"),
    *("fill", "use", "log2_steps", "log2_sm_bytes", "log2_sm_flop", "cluster_k"),
    *("a_bytes", "b_bytes", "c_bytes", "pingpong", "wide", "smem_bytes", "outputs_a_thread"),
    *("filled_waves", "log2_compute_over_floor", "log2_sm_bytes_over_floor"),
    *("log2_traffic_over_floor", "raster_n", "group", "log2_wave_bytes"),
    *("log2_read_over_floor",),
)
FEATURES = (*OF_PROBLEM, *OF_KERNEL)

#: Numbers of a kernel, in the order in which C reads them: `family` counts in a predictor's list.
NUMBERS = (
    *("family", "tile_m", "tile_n", "tile_k", "stages", "cluster_m", "cluster_n", "cluster_k"),
    *("slices", "persistent", "threads", "smem_bytes", "a_bytes", "b_bytes", "c_bytes"),
    *("pingpong", "wide", "raster_n", "group"),
)
#: For a family without such a gene, and what a warp that loads for itself takes of K at once, twice
#: as much of pieces of 16 bytes.
TILE_K, STAGES, GROUP, STEP_K = 64, 1, 1, 16


class Grid(Protocol):
    """Tiles and slices, as of a launch record."""

    @property
    def tile_m(self) -> int: ...
    @property
    def tile_n(self) -> int: ...
    @property
    def persistent(self) -> bool: ...
    @property
    def slices(self) -> int: ...


class Described(Protocol):
    """A kernel by its family, genome and launch record."""

    @property
    def family(self) -> str: ...
    @property
    def genome(self) -> Mapping[str, int | str | bool]: ...
    @property
    def grid(self) -> Grid: ...
    @property
    def cluster(self) -> Sequence[int]: ...
    @property
    def block(self) -> int: ...
    @property
    def smem_bytes(self) -> int: ...
    @property
    def align(self) -> Sequence[int]: ...


def _gene(kernel: Described, name: str, without: int) -> int:
    value = kernel.genome.get(name)
    return value if type(value) is int and value > 0 else without


def numbers_of(kernel: Described, families: Sequence[str]) -> tuple[int, ...]:
    """NUMBERS of a kernel. Raises ValueError for a family that is not in the list."""
    genes, grid = kernel.genome, kernel.grid
    step = STEP_K * (1 + (min(kernel.align) == 16))
    flying = step * _gene(kernel, "unroll", 0) * _gene(kernel, "warps_k", 1)
    return (
        *(families.index(kernel.family), grid.tile_m, grid.tile_n),
        *(_gene(kernel, "tile_k", flying or TILE_K), _gene(kernel, "stages", STAGES)),
        *(*kernel.cluster, grid.slices, int(grid.persistent), kernel.block, kernel.smem_bytes),
        *(*kernel.align, int(genes.get("schedule") == "pingpong")),
        int(any(genes.get(gene) is True for gene in ("wide", "cp_async"))),
        *(int(genes.get("raster") == "n"), _gene(kernel, "group", GROUP)),
    )
