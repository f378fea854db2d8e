"""The one oracle: operands that expose wrong accumulation, the float64 product, and error bounds.

Used by every test that compares values. `a` is [M, K] and `b` [K, N] as matmul takes them, views
where the layout stores them transposed. Results are compared in float64 on the operands' device.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

#: Half of the gap between neighbours, relative: what rounding to the output type may cost.
HALF_ULP = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}

#: Half of the smallest positive number: what rounding near zero may cost, absolute.
HALF_TINY = {torch.float16: 2.0**-25, torch.bfloat16: 2.0**-134}

#: Integers up to here are exact in the type, hence so is a result within them.
EXACT_INT = {torch.float16: 2048, torch.bfloat16: 256}

#: Largest |x| + |y| sum of products that fp32 holds exactly in any order of addition.
EXACT_SUM = 2**24

#: An fp32 sum may be off by this times sum |a||b|. fp32 on tensor cores stays 16 times below it at
#: K = 16384; fp16 accumulation is 16 times above it already at K = 64.
F32_SUM_ERROR = 2.0**-17

#: Rows of the product computed at a time: float64 copies of the largest operands stay below 2 GiB.
CHUNK_ELEMENTS = 1 << 26


def stored(matrix: torch.Tensor, letter: str) -> torch.Tensor:
    """The same values, stored as they are ("n") or transposed ("t")."""
    return matrix.contiguous() if letter == "n" else matrix.t().contiguous().t()


def normal(
    m: int, n: int, k: int, layout: str, dtype: torch.dtype, *, device: str = "cpu", seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Operands of N(0, 1)."""
    generator = torch.Generator(device).manual_seed(seed)
    a = torch.randn((m, k), generator=generator, device=device).to(dtype)
    b = torch.randn((k, n), generator=generator, device=device).to(dtype)
    return stored(a, layout[0]), stored(b, layout[1])


def cancelling(
    m: int, n: int, k: int, layout: str, dtype: torch.dtype, *, device: str = "cpu", seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Integers whose product is exact in fp32 in any order of addition and in no 16-bit type.

    A = [X | S - X] and B = [Y; Y] with X, Y positive and S sparse, so A @ B = S @ Y: partial sums
    grow with K far beyond what fp16 or bf16 counts exactly, stay below 2^24, and cancel to a
    result that the output type holds exactly. An odd K has a column of zeros in the middle.
    """
    generator = torch.Generator(device).manual_seed(seed)
    half = k // 2
    largest = min(32, math.isqrt(EXACT_SUM // max(1, k)) - 1)
    if largest < 1:
        raise ValueError(f"K={k} is too long for exact sums of products below 2^24")

    def integers(low: int, high: int, *size: int) -> torch.Tensor:
        return torch.randint(low, high + 1, size, generator=generator, device=device)

    x, y = integers(1, largest, m, half), integers(1, largest, half, n)
    # At most `count` entries of +-1 a row: the result stays within what the output type counts.
    count = min(half, EXACT_INT[dtype] // largest)
    s = torch.zeros((m, half), dtype=torch.int64, device=device)
    if half:
        s.scatter_(1, integers(0, half - 1, m, count), integers(-1, 1, m, count))
    middle = (torch.zeros((m, k % 2), device=device), torch.ones((k % 2, n), device=device))
    a = torch.cat([x, middle[0], s - x], dim=1).to(dtype)
    b = torch.cat([y, middle[1], y], dim=0).to(dtype)
    return stored(a, layout[0]), stored(b, layout[1])


def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a @ b in float64, [M, N]."""
    rows = max(1, CHUNK_ELEMENTS // max(1, a.shape[1]))
    wide = b.double()
    parts = [a[start : start + rows].double() @ wide for start in range(0, a.shape[0], rows)]
    return torch.cat(parts) if parts else wide.new_zeros((0, b.shape[1]))


@dataclass(frozen=True)
class Errors:
    """How far a result is from the float64 product.

    `frobenius` is relative over the whole; `rounding` is what rounding the exact product to the
    output type alone would give there; `worst` is the largest element error over its own bound,
    so at most 1 is right; `infinite` counts elements that are finite on one side only.
    """

    frobenius: float
    rounding: float
    worst: float
    infinite: int

    @property
    def ok(self) -> bool:
        """Within 1.25 times an fp32-accumulated result, no element beyond its bound."""
        # 2^-20 covers fp32's own error where the exact product needs no rounding at all.
        whole = self.frobenius <= 1.25 * self.rounding + 2.0**-20
        return whole and self.worst <= 1.0 and self.infinite == 0


def errors(c: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> Errors:
    """Compare c with a @ b. Elements that overflow the output type must be infinite in c."""
    exact = product(a, b)
    rounded = exact.to(c.dtype).double()
    got = c.double()
    finite = torch.isfinite(rounded) & torch.isfinite(got)
    same = (rounded == got) | (torch.isnan(rounded) & torch.isnan(got))
    infinite = int((~finite & ~same).sum())
    zero = torch.zeros_like(exact)
    off = torch.where(finite, got - exact, zero)
    ideal = torch.where(finite, rounded - exact, zero)
    size = torch.where(finite, exact, zero)
    bound = (
        HALF_ULP[c.dtype] * size.abs()
        + torch.where(finite, product(a.abs(), b.abs()), zero) * F32_SUM_ERROR
        + HALF_TINY[c.dtype]
    )
    norm = float(size.norm()) or 1.0
    worst = float((off.abs() / bound).max()) if off.numel() else 0.0
    return Errors(float(off.norm()) / norm, float(ideal.norm()) / norm, worst, infinite)


def assert_product(c: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> None:
    """c is a @ b as an fp32-accumulating kernel gives it."""
    found = errors(c, a, b)
    assert found.ok, f"{tuple(a.shape)} @ {tuple(b.shape)}: {found}"


def assert_exact(c: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> None:
    """c equals a @ b in every bit; for operands of `cancelling` and other exact integers."""
    exact = product(a, b)
    wrong = int((c.double() != exact).sum())
    assert wrong == 0, f"{wrong} of {exact.numel()} elements of {tuple(exact.shape)} are wrong"
