"""What a manifest is made of, and the limits of the format.

`manifest_reader.parse` is the only way from bytes to these; everything that holds one may therefore
trust it. Tuples, as dataclasses cost 1 ms each of a process's first product. Nothing here reads a
file or knows about devices.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ..problem import Key, Problem, Reason

SCHEMA = "hgemm-packs/2"
LAUNCHER_ABI = 5
#: Part of every kernel's `identity`. Raise it when the same launch record becomes another launch:
#: another grid or cap of it, other attributes, pairs, or another choice of when to be dependent.
LAUNCH_RULES = 2
MAX_MANIFEST_BYTES = 16 << 20
MAX_BLOB_BYTES = 512 << 20

#: What older packs were made for, which are read as ever: all of them are plain products.
PLAIN_ABI = 4
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

_MAPPED = {"ptr_v1": "", "tma2_v1": "ab", "tma3_v1": "abc", "tma2_ws_v2": "ab"}
#: Operands that come as tensor maps, in order.
MAPPED = _MAPPED | {WITH_ADDEND[name]: operands for name, operands in _MAPPED.items()}

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
    with programmatic dependent launch, a persistent one without a cluster in clusters of two."""

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

    @property
    def key(self) -> Key:
        """The problem this row is about."""
        return self[:8]


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

    def admits(self, problem: Problem | Row) -> Reason | None:
        """None when the kernel takes the problem, else the first thing that speaks against it.
        A table row is a packed, fully aligned problem."""
        for name in ("layout", "dtype", "out_dtype", "acc", "epilogue"):
            mine, asked = getattr(self, name), getattr(problem, name)
            if mine != asked:
                return Reason(name, f"{self.name} has {name} {mine}, not {asked}")
        for name in ("m", "n", "k"):
            sizes, asked = getattr(self, name), getattr(problem, name)
            if not sizes.admits(asked):
                return Reason("dims", f"{self.name} takes {name.upper()} of {sizes}, not {asked}")
        if isinstance(problem, Problem) and problem.align < max(self.align):
            return Reason("unaligned", f"{self.name} needs {max(self.align)}-byte alignment")
        return None


class DeviceProfile(NamedTuple):
    """The device that measurements are valid for."""

    name: str
    sm_count: int
    l2_bytes: int
    mem_bw_gbps: float


class PackInfo(NamedTuple):
    name: str
    version: str
    license: str
    created: str


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

    def clears(self, row: Row) -> bool:
        """Both lower bounds, hot and cold, are above one plus the noise floor."""
        return min(row.hot.lcb, row.cold.lcb) > 1.0 + self.noise_floor
