"""What a decision is made about and from: a problem, a device, and a reason.

Used by every layer above the C launcher; built on a miss by `dispatch`, by `report` for explain,
and by the generator. It decides nothing itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

LAYOUTS = ("nn", "nt", "tn", "tt")
DTYPES = ("f16", "bf16")
ACCUMULATORS = ("f32",)
#: What is computed of a product before it is rounded: nothing more, a bias of N values added to
#: each row, that and an activation, a packed matrix [M,N] added, or of N columns of which x [M,N/2]
#: is the first half and y [M,N/2] the second C [M,N/2] = silu(x) * y.
EPILOGUES = (
    *("none", "bias", "bias_relu", "bias_gelu", "bias_gelu_tanh", "bias_silu"),
    *("residual", "gated_silu"),
)
#: Those that add nothing.
WITHOUT_ADDEND = ("none", "gated_silu")
ALIGNMENTS = (2, 4, 8, 16)
#: Bytes of A, B and C.
Alignments = tuple[int, int, int]
#: Addresses, and leading strides longer than a row, at multiples of 16 bytes: only the sizes say
#: less.
ALIGNED: Alignments = (16, 16, 16)

#: M, N and K travel to the kernels as int32.
LARGEST_DIM = 2**31 - 1

#: M, N, K, layout, dtype, out_dtype, acc, epilogue: what a table row is looked up by. Where an
#: address or a stride has a say as well, two more: base and packed; of a batch a third, batches.
Key = tuple[Any, ...]

#: Kinds of problems, named as in the published tables.
REGIMES = ("tiny", "deep-K", "small-K", "skinny", "mid", "2e10..1e11", ">=1e11")


def regime(m: int, n: int, k: int) -> str:
    """The one of REGIMES that a shape is in; the first that fits."""
    flops = 2 * m * n * k
    if flops <= 1e8:
        return "tiny"
    if m * n <= 512**2 and k >= 2048:
        return "deep-K"
    if k <= 256 and m * n >= 1024**2:
        return "small-K"
    if min(m, n) <= 256 and max(m, n) >= 2048 and k >= 1024:
        return "skinny"
    if flops <= 2e10:
        return "mid"
    return "2e10..1e11" if flops < 1e11 else ">=1e11"


@dataclass(frozen=True, slots=True)
class Problem:
    """One matmul: C[M,N] = A[M,K] @ B[K,N], how the operands are stored, and what is computed.

    `layout` names the storage ("nt": A [M,K], B stored [N,K]); C is row-major. `packed` says that
    no row of A or B is followed by a gap. `base` is how many bytes, at most 16, divide each
    operand's address and the stride from row to row, where that is a matter of its own: 16 where
    the sizes of packed rows say no more. `batches` is how many such products there are at once,
    each of matrices of its own; they are packed where each A and B also begins where the one before
    ends. Raises ValueError outside these limits.
    """

    m: int
    n: int
    k: int
    layout: str
    dtype: str
    out_dtype: str = ""
    acc: str = "f32"
    epilogue: str = "none"
    base: Alignments = ALIGNED
    packed: bool = True
    batches: int = 1

    def __post_init__(self) -> None:
        if not self.out_dtype:
            object.__setattr__(self, "out_dtype", self.dtype)
        if not self._is_valid():  # this way, for a launcher that decides cannot wait
            self._refuse()
        if self.base != ALIGNED:
            said = zip(self.base, alignments_of(self, ALIGNED), strict=True)
            object.__setattr__(self, "base", tuple(16 if x >= most else x for x, most in said))

    def _is_valid(self) -> bool:
        sizes = self.m, self.n, self.k, self.batches
        return (
            min(sizes) >= 0
            and max(sizes) <= LARGEST_DIM
            and self.batches >= 1
            and self.layout in LAYOUTS
            and self.dtype in DTYPES
            and self.out_dtype in DTYPES
            and self.acc in ACCUMULATORS
            and self.epilogue in EPILOGUES
            and (self.base == ALIGNED or (len(self.base) == 3 and {*self.base} <= {*ALIGNMENTS}))
        )

    def _refuse(self) -> None:
        """Raise ValueError for the first field that is not valid."""
        for name, least in (("m", 0), ("n", 0), ("k", 0), ("batches", 1)):
            if not least <= getattr(self, name) <= LARGEST_DIM:
                raise ValueError(f"{name}={getattr(self, name)} is not in {least}..{LARGEST_DIM}")
        for name, allowed in (
            ("layout", LAYOUTS),
            ("dtype", DTYPES),
            ("out_dtype", DTYPES),
            ("acc", ACCUMULATORS),
            ("epilogue", EPILOGUES),
        ):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name}={getattr(self, name)!r} is not one of {allowed}")
        raise ValueError(f"base={self.base!r} is not three of {ALIGNMENTS}")

    @property
    def key(self) -> Key:
        """What the selection table knows a problem by."""
        more: Key = () if self.packed and self.base == ALIGNED else (self.base, self.packed)
        if self.batches > 1:
            more = self.base, self.packed, self.batches
        return (
            self.m,
            self.n,
            self.k,
            self.layout,
            self.dtype,
            self.out_dtype,
            self.acc,
            self.epilogue,
            *more,
        )

    @property
    def alignments(self) -> Alignments:
        """Bytes, at most 16, that divide the address and every row's beginning of A, B and C."""
        return alignments_of(self, self.base)

    @property
    def align(self) -> int:
        """The least of them."""
        return min(self.alignments)

    def __str__(self) -> str:
        more = "" if self.epilogue == "none" else f" {self.epilogue}"
        if self.base != ALIGNED:
            more += f" at {'/'.join(map(str, self.base))} bytes"
        gaps = "" if self.packed else " strided"
        many = "" if self.batches == 1 else f"{self.batches} of "
        return f"{many}{self.m}x{self.n}x{self.k} {self.layout} {self.dtype}{more}{gaps}"


class GroupedProblem(NamedTuple):
    """One grouped product: of M rows of A [M,K], group after group, each group times a matrix of
    its own, B[e] [K,N] of B [groups,K,N]. `layout` is that of A and of each B[e]; all is packed and
    16-byte aligned. Only the device knows where groups end."""

    groups: int
    m: int
    n: int
    k: int
    layout: str
    dtype: str

    @property
    def base(self) -> Alignments:
        return ALIGNED

    @property
    def packed(self) -> bool:
        return True

    @property
    def out_dtype(self) -> str:
        return self.dtype

    @property
    def acc(self) -> str:
        return "f32"

    @property
    def epilogue(self) -> str:
        return "none"

    def __str__(self) -> str:
        sizes = f"{self.m}x{self.n}x{self.k}"
        return f"{sizes} in {self.groups} groups {self.layout} {self.dtype}"


def columns_of(n: int, epilogue: str) -> int:
    """Columns of C, of a product of N columns with this epilogue."""
    return n // 2 if epilogue == "gated_silu" else n


class Stored(Protocol):
    """What alignments follow from: a problem, or a row of a table."""

    @property
    def m(self) -> int: ...
    @property
    def n(self) -> int: ...
    @property
    def k(self) -> int: ...
    @property
    def layout(self) -> str: ...
    @property
    def epilogue(self) -> str: ...
    @property
    def packed(self) -> bool: ...


def alignments_of(problem: Stored, base: Alignments) -> Alignments:
    """Of operands at addresses at multiples of `base`: packed rows are as long as they are."""
    of_a = problem.k if problem.layout[0] == "n" else problem.m
    of_b = problem.n if problem.layout[1] == "n" else problem.k
    of_c = columns_of(problem.n, problem.epilogue)
    a, b, c = base
    # A single row has no gap behind it.
    if problem.packed or (problem.m if problem.layout[0] == "n" else problem.k) == 1:
        a = math.gcd(a, 2 * of_a)
    if problem.packed or (problem.k if problem.layout[1] == "n" else problem.n) == 1:
        b = math.gcd(b, 2 * of_b)
    return a, b, math.gcd(c, 2 * of_c)


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """What a pack is matched against. `driver` is cuDriverGetVersion's integer, 13000 for 13.0. The
    memory bandwidth is what clock and width of its bus allow; a `power_limit_w` stands for that of
    the GPU at the PCI address `bus_id`. None is unknown."""

    name: str
    arch: str
    sm_count: int
    l2_bytes: int
    driver: int
    theoretical_mem_bw_gbps: float | None = None
    power_limit_w: float | None = None
    bus_id: str = ""


def cuda_of(driver: int) -> str:
    """The version of CUDA that a driver is for, as nvidia-smi shows it: "CUDA 13.0" of 13000."""
    return f"CUDA {driver // 1000}.{driver % 1000 // 10}"


@dataclass(frozen=True, slots=True)
class Reason:
    """One step of a decision: a stable `code`, a sentence, and whether it spoke for the kernel."""

    code: str
    text: str
    accepted: bool = False

    def __str__(self) -> str:
        return f"{'yes' if self.accepted else 'no '} {self.code}: {self.text}"


def set_bytes(problem: Problem) -> int:
    """Bytes of A, B, C and a residual together: what one call has to touch."""
    m, n, k = problem.m, problem.n, problem.k
    outputs = m * columns_of(n, problem.epilogue) * (2 if problem.epilogue == "residual" else 1)
    return 2 * (m * k + k * n + outputs) * problem.batches
