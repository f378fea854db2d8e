"""What a manifest is made of, and the limits of the format.

`manifest_reader.parse` is the only way from bytes to these; everything that holds one may therefore
trust it. Tuples, as dataclasses cost 1 ms each of a process's first product. Nothing here reads a
file or knows about devices.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ..problem import (
    ALIGNED,
    Alignments,
    GroupedProblem,
    Key,
    Problem,
    Reason,
    alignments_of,
)

SCHEMA = "hgemm-packs/2"
LAUNCHER_ABI = 7
#: Part of every kernel's `identity`. Raise it when the same launch record becomes another launch:
#: another grid or cap of it, other attributes, pairs, or another choice of when to be dependent.
LAUNCH_RULES = 2
MAX_MANIFEST_BYTES = 16 << 20
MAX_BLOB_BYTES = 512 << 20

#: What older packs were made for, which are read as ever: all of them are plain products.
PLAIN_ABI = 4
#: The first with epilogues, and that with grouped kernels and rows that say how operands are
#: aligned; batches came with LAUNCHER_ABI.
EPILOGUE_ABI = 5
GROUPED_ABI = 6
_PLAIN_LAYOUTS = {
    "ptr_v1": (8, 8, 8, 4, 4, 4, 4, 4, 4),
    "tma2_v1": (128, 128, 8, 4, 4, 4, 4),
    "tma3_v1": (128, 128, 128, 4, 4, 4),
    "tma2_ws_v2": (128, 128, 8, 8, 4, 4, 4, 4),
}

#: Layout of a plain product -> that of the same kernel with an addend, whose address is the last
#: parameter.
WITH_ADDEND = {name: f"{name}_addend" for name in _PLAIN_LAYOUTS}

#: Bytes of each kernel parameter, in order. The launcher fills exactly these structs.
PARAM_LAYOUTS: dict[str, tuple[int, ...]] = _PLAIN_LAYOUTS | {
    WITH_ADDEND[name]: (*sizes, 8) for name, sizes in _PLAIN_LAYOUTS.items()
}
#: Layout -> that of the same kernel for a batch, how many products it has being the last parameter.
OF_BATCH = {
    name: name.replace("_v1", "_batched_v1")
    for name in ("tma2_v1", "tma3_v1", "tma2_v1_addend", "tma3_v1_addend")
}
PARAM_LAYOUTS |= {many: (*PARAM_LAYOUTS[one], 4) for one, many in OF_BATCH.items()}
#: The layout of grouped products: tensor maps of tokens and of all weights, C, sizes, then where
#: the ends of the groups are and how many groups there are.
GROUPED_LAYOUT = "tma2_grouped_v1"
PARAM_LAYOUTS[GROUPED_LAYOUT] = (128, 128, 8, 4, 4, 4, 4, 8, 4)
MAX_GROUPS = 512

_MAPPED = {"ptr_v1": "", "tma2_v1": "ab", "tma3_v1": "abc", "tma2_ws_v2": "ab"}
#: Operands that come as tensor maps, in order.
MAPPED = _MAPPED | {WITH_ADDEND[name]: operands for name, operands in _MAPPED.items()}
MAPPED |= {many: MAPPED[one] for one, many in OF_BATCH.items()}
MAPPED[GROUPED_LAYOUT] = "ab"

#: Parameter layouts of kernels that add something.
ADDING = frozenset(name for name in PARAM_LAYOUTS if name.endswith("_addend"))
#: Parameter layouts with partial sums in global memory.
WITH_WORKSPACE = frozenset({"tma2_ws_v2", "tma2_ws_v2_addend"})


class Timing(NamedTuple):
    """Microseconds per call of ours and of both baselines; `speedup` is torch, what runs without a
    kernel, over ours, `lcb` its lower 95% confidence bound."""

    us: float
    torch_us: float
    cublaslt_us: float
    speedup: float
    lcb: float

    @property
    def vs_best(self) -> float:
        """The better of torch and tuned cuBLASLt over ours, by medians."""
        return min(self.torch_us, self.cublaslt_us) / self.us


class Row(NamedTuple):
    """One measured problem on one device profile; `kernel` is None where cuBLAS stays. `dependent`
    is the kernel, that or another, for where it follows a kernel of ours in a CUDA graph: launched
    with programmatic dependent launch, a persistent one without a cluster in clusters of two.
    `base`, `packed` and `batches` are as in a problem."""

    m: int
    n: int
    k: int
    layout: str
    dtype: str
    out_dtype: str
    acc: str
    epilogue: str
    kernel: str | None
    profile: str
    hot: Timing
    cold: Timing
    pairs: int
    date: str
    dependent: str | None = None
    base: Alignments = ALIGNED
    packed: bool = True
    batches: int = 1

    @property
    def key(self) -> Key:
        """The problem this row is about."""
        if self.batches > 1:
            return self[:8] + self[-3:]
        return self[:8] + (() if self.packed and self.base == ALIGNED else self[-3:-1])


class GroupedRow(NamedTuple):
    """One measured grouped product on one device profile; `kernel` is None where torch stays. It
    speaks of any number of rows `m` down to the next smaller one that was measured, and at most
    down to a quarter. No cuBLASLt call is a grouped product: `cublaslt_us` is torch's time."""

    groups: int
    m: int
    n: int
    k: int
    layout: str
    dtype: str
    kernel: str | None
    profile: str
    hot: Timing
    cold: Timing
    pairs: int
    date: str

    @property
    def problem(self) -> GroupedProblem:
        """What was measured."""
        return GroupedProblem(*self[:6])


class TensorMapSpec(NamedTuple):
    """How one operand's tensor map is encoded. `box` is [inner, outer] in elements."""

    operand: str
    box: tuple[int, int]
    swizzle: int
    row_group: int
    l2_promotion: int


class GridRule(NamedTuple):
    """Tiles of C in elements; a persistent kernel's grid is capped at the co-resident CTAs, at half
    of them where it reads ahead, but where a dependent launch would then have over three tiles a
    CTA. `slices` is parts of K that clusters of their own work on, each
    with the whole grid of tiles."""

    tile_m: int
    tile_n: int
    persistent: bool
    slices: int = 1


class DimRange(NamedTuple):
    """Sizes of one dimension that a kernel takes."""

    min: int
    max: int
    multiple_of: int

    def admits(self, size: int) -> bool:
        return self.min <= size <= self.max and size % self.multiple_of == 0

    def __str__(self) -> str:
        step = f" in steps of {self.multiple_of}" if self.multiple_of > 1 else ""
        return f"{self.min}..{self.max}{step}"


class Numerics(NamedTuple):
    """What the numeric gate saw: the worst error against the reference, over how many shapes."""

    reference: str
    max_rel_err: float
    shapes_tested: int


class KernelEntry(NamedTuple):
    """One kernel: identity, launch record, and the problems that it takes. `id` is the sha256 of
    the cubin at `offset`, `size` bytes long, in the blob; `align` is bytes for a, b, c; `cluster`
    is CTAs along M, N and K; `workspace_bytes` is what partial sums take for each CTA of the grid,
    0 where none go through global memory: words that are all ones before a launch and after it;
    CTAs of a `cooperative` kernel wait for each other, so that it takes no grid that the device
    cannot run at once; a `reads_ahead` kernel reads A and B before it waits for the grid ahead: it
    is launched dependent only where every grid that may still run is known not to write them;
    behind one that `triggers_early`, which lets the next grid start before the one ahead has ended,
    there may be many."""

    id: str
    name: str
    symbol: str
    family: str
    genome: Mapping[str, int | str | bool]
    offset: int
    size: int
    param_layout: str
    param_sizes: tuple[int, ...]
    block: int
    cluster: tuple[int, int, int]
    grid: GridRule
    smem_bytes: int
    regs: int
    tma: tuple[TensorMapSpec, ...]
    workspace_bytes: int
    align: tuple[int, int, int]
    m: DimRange
    n: DimRange
    k: DimRange
    dtype: str
    out_dtype: str
    acc: str
    layout: str
    epilogue: str
    deterministic: bool
    numerics: Numerics
    cooperative: bool = False
    reads_ahead: bool = False
    triggers_early: bool = False

    @property
    def is_grouped(self) -> bool:
        """Whether it runs grouped products, and these alone."""
        return self.param_layout == GROUPED_LAYOUT

    @property
    def is_batched(self) -> bool:
        """Whether it runs batches of products, and these alone."""
        return self.param_layout in OF_BATCH.values()

    def admits(self, problem: Problem | Row | GroupedProblem) -> Reason | None:
        """None when the kernel takes the problem, else the first thing that speaks against it."""
        if self.is_grouped != isinstance(problem, GroupedProblem):
            runs = "grouped products alone" if self.is_grouped else "no grouped product"
            return Reason("grouped", f"{self.name} runs {runs}")
        if isinstance(problem, GroupedProblem) and problem.groups > MAX_GROUPS:
            return Reason("dims", f"{self.name} takes {MAX_GROUPS} groups at most")
        batches = 1 if isinstance(problem, GroupedProblem) else problem.batches
        if self.is_batched != (batches > 1):
            runs = "batches alone" if self.is_batched else "no batch"
            return Reason("batches", f"{self.name} runs {runs}")
        for name in ("layout", "dtype", "out_dtype", "acc", "epilogue"):
            mine, asked = getattr(self, name), getattr(problem, name)
            if mine != asked:
                return Reason(name, f"{self.name} has {name} {mine}, not {asked}")
        for name in ("m", "n", "k"):
            sizes, asked = getattr(self, name), getattr(problem, name)
            if not sizes.admits(asked):
                return Reason("dims", f"{self.name} takes {name.upper()} of {sizes}, not {asked}")
        had = alignments_of(problem, problem.base)
        for operand, needed, found in zip("ABC", self.align, had, strict=True):
            if found < needed:
                text = f"{self.name} needs {operand} at multiples of {needed} bytes, not {found}"
                return Reason("unaligned", text)
        return None


class DeviceProfile(NamedTuple):
    """The device that measurements are valid for: see `hgemm_packs.profiles`. `mem_bw_gbps` was
    measured, the theoretical bandwidth is that of clock and width of the bus; the power limit is
    the one in force. None: nobody recorded it."""

    name: str
    sm_count: int
    l2_bytes: int
    mem_bw_gbps: float
    theoretical_mem_bw_gbps: float | None = None
    power_limit_w: float | None = None


class PackInfo(NamedTuple):
    name: str
    version: str
    license: str
    created: str

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


class Toolchain(NamedTuple):
    nvrtc: str
    cuda_core: str
    flags: tuple[str, ...]


class GeneratorInfo(NamedTuple):
    version: str
    commit: str
    dirty: bool


class Blob(NamedTuple):
    bytes: int
    sha256: str


class Baseline(NamedTuple):
    """Versions that the table was measured against; the never-slower promise holds for these."""

    torch: str
    cublas: str
    driver: str
    protocol: str


class WinPolicy(NamedTuple):
    """When a row is a win: `rule` names it, `noise_floor` is the relative A/A deviation."""

    noise_floor: float
    rule: str

    def clears(self, row: Row | GroupedRow) -> bool:
        """Both lower bounds, hot and cold, are above one plus the noise floor."""
        return min(row.hot.lcb, row.cold.lcb) > 1.0 + self.noise_floor
