"""Operands of batches, however they lie, and what is right of them."""

from __future__ import annotations

import torch

DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16}
E, M, N, K = 5, 16, 24, 40


def whole(*sizes: int, dtype: torch.dtype = torch.float16, seed: int = 0) -> torch.Tensor:
    """Whole numbers, whose sums are exact."""
    source = torch.Generator().manual_seed(seed + sum(sizes))
    return torch.randint(-4, 5, sizes, generator=source).to(dtype)


def stored(matrices: torch.Tensor, how: str) -> torch.Tensor:
    """The same values, stored another way: rows or columns behind each other, with the matrices
    behind each other, apart, row by row in turn, or in more memory than they have."""
    by_column = how.endswith("by column")
    x = (matrices.mT if by_column else matrices).contiguous()
    e, rows, columns = x.shape
    if how.startswith("apart"):
        x = torch.cat([x, whole(e, 3, columns, dtype=x.dtype)], 1)[:, :rows]
    elif how.startswith("in turn"):
        x = x.transpose(0, 1).contiguous().transpose(0, 1)
    elif how.startswith("with gaps"):
        x = torch.cat([x, whole(e, rows, 8, dtype=x.dtype)], 2)[..., :columns]
    return x.mT if by_column else x


WAYS = tuple(
    f"{how}{end}"
    for how in ("packed", "apart", "in turn", "with gaps")
    for end in ("", " by column")
)


def operands(
    a: str = "packed", b: str = "packed", dtype: torch.dtype = torch.float16, e: int = E
) -> tuple[torch.Tensor, torch.Tensor]:
    return (
        stored(whole(e, M, K, dtype=dtype), a),
        stored(whole(e, K, N, dtype=dtype, seed=1), b),
    )


def assert_batch(
    result: torch.Tensor, a: torch.Tensor, b: torch.Tensor, more: torch.Tensor | None = None
) -> None:
    """Each matrix is the float64 product of its own two, and what is added, rounded once."""
    exact = a.double() @ b.double()
    if more is not None:
        exact = exact + more.double()
    assert result.shape == exact.shape and result.is_contiguous()
    assert torch.equal(result, exact.to(a.dtype))
