"""Kernels for the numeric gate, written in Python: some right, some that a gate must catch.

Each is a function of (a, b, c) on CPU tensors. The record of `made_up` has small tiles and a short
ring, so that the gate's problems stay small.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from hgemm_packs.pack.manifest import KernelEntry
from tests import packs
from tests.generator.kernels import record

TILE_M, TILE_N, TILE_K, STAGES, SMS = 16, 16, 16, 5, 4
RING = TILE_K * STAGES

Tensor = torch.Tensor
Cheat = Callable[[Tensor, Tensor, Tensor], None]


def made_up(layout: str = "nn", dtype: str = "f16", **changes: Any) -> KernelEntry:
    """A persistent kernel of small tiles."""
    step = {"m": 1, "n": 8, "k": 8}
    fields: dict[str, Any] = {
        "grid": {"tile_m": TILE_M, "tile_n": TILE_N, "persistent": True},
        "genome": {"tile_k": TILE_K, "stages": STAGES, "ctas_per_sm": 1},
        "smem_bytes": 200 << 10,  # one CTA an SM
        "dims": {d: {"min": s, "max": 1 << 24, "multiple_of": s} for d, s in step.items()},
        "layout": layout,
        "dtype": dtype,
        "out_dtype": dtype,
    }
    return record(packs.built("made_up", "ptr_v1", **fields | changes).entry_fields)


def product(a: Tensor, b: Tensor) -> Tensor:
    return a.float() @ b.float()


def honest(a: Tensor, b: Tensor, c: Tensor) -> None:
    c.copy_(product(a, b))


def split_k(a: Tensor, b: Tensor, c: Tensor) -> None:
    """Four fp32 parts of K, added in the order of their ranks."""
    size = -(-a.shape[1] // 4)
    parts = [product(x, y) for x, y in zip(a.split(size, 1), b.split(size, 0), strict=True)]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    c.copy_(total)


def backwards(a: Tensor, b: Tensor, c: Tensor) -> None:
    """One product at a time, the last of K first."""
    total = torch.zeros(c.shape)
    for k in reversed(range(a.shape[1])):
        total += a[:, k : k + 1].float() * b[k : k + 1].float()
    c.copy_(total)


def _truncate(values: Tensor, unit: Tensor) -> Tensor:
    return torch.nan_to_num(torch.trunc(values / unit), posinf=0.0, neginf=0.0) * unit


def tensor_core(a: Tensor, b: Tensor, c: Tensor) -> None:
    """Sixteen products and the sum so far are aligned to the largest of them, cut off below one bit
    more than fp32 holds, added, and cut off to fp32: never rounded to nearest."""
    wide_a, wide_b = a.double(), b.double()
    total = torch.zeros(c.shape, dtype=torch.float64)
    for k in range(0, a.shape[1], 16):
        terms = wide_a[:, k : k + 16, None] * wide_b[None, k : k + 16]
        largest = torch.maximum(terms.abs().amax(1), total.abs())
        exponent = torch.frexp(largest).exponent.double()
        aligned = torch.exp2(exponent - 25)
        total = _truncate(total, aligned) + _truncate(terms, aligned[:, None]).sum(1)
        total = _truncate(total, torch.exp2(torch.frexp(total).exponent.double() - 24))
    # NaN and Inf take their own way through the hardware.
    special = ~torch.isfinite(a.float()).all(1)[:, None] | ~torch.isfinite(b.float()).all(0)
    c.copy_(torch.where(special, product(a, b), total.float()))


def chunks_in_16_bits(size: int) -> Cheat:
    """Adds fp32 sums of `size` of K in the output type: what a 16-bit accumulator comes to."""

    def launch(a: Tensor, b: Tensor, c: Tensor) -> None:
        total = torch.zeros(c.shape, dtype=c.dtype)
        for x, y in zip(a.split(size, 1), b.split(size, 0), strict=True):
            total += product(x, y).to(c.dtype)
        c.copy_(total)

    return launch


def only_if(condition: Callable[[int, int, int], bool], bad: Cheat) -> Cheat:
    """Right but for the problems (M, N, K) that meet the condition."""

    def launch(a: Tensor, b: Tensor, c: Tensor) -> None:
        (m, k), n = a.shape, b.shape[1]
        (bad if condition(m, n, k) else honest)(a, b, c)

    return launch


def k_limited(limit: Callable[[int], int]) -> Cheat:
    """Multiplies only the first limit(K) of K."""

    def launch(a: Tensor, b: Tensor, c: Tensor) -> None:
        k = limit(a.shape[1])
        honest(a[:, :k], b[:k], c)

    return launch


def zero(a: Tensor, b: Tensor, c: Tensor) -> None:
    c.zero_()


def nothing(a: Tensor, b: Tensor, c: Tensor) -> None:
    """Leaves C as it was."""


def whole_rows_only(a: Tensor, b: Tensor, c: Tensor) -> None:
    whole = a.shape[0] // TILE_M * TILE_M
    honest(a[:whole], b, c[:whole])


def whole_columns_only(a: Tensor, b: Tensor, c: Tensor) -> None:
    whole = b.shape[1] // TILE_N * TILE_N
    honest(a, b[:, :whole], c[:, :whole])


def beyond(c: Tensor, rows: tuple[int, int], columns: tuple[int, int]) -> Tensor:
    """C grown by rows before and after, and by columns behind."""
    m, n = c.shape
    start = c.storage_offset() - rows[0] * c.stride(0) - columns[0]
    size = (m + sum(rows), n + sum(columns))
    return c.as_strided(size, c.stride(), start)


def writes(rows: tuple[int, int], columns: tuple[int, int]) -> Cheat:
    def launch(a: Tensor, b: Tensor, c: Tensor) -> None:
        beyond(c, rows, columns).zero_()
        honest(a, b, c)

    return launch


def spreads_nan(a: Tensor, b: Tensor, c: Tensor) -> None:
    """Adds zero times a neighbour's row, as a masked product does."""
    c.copy_(product(a, b) + 0 * product(a, b).roll(1, 0))


def hides_nan(a: Tensor, b: Tensor, c: Tensor) -> None:
    c.copy_(product(a, b).nan_to_num(0.0))


def skips_nan(a: Tensor, b: Tensor, c: Tensor) -> None:
    """Leaves what would be NaN as it was: right only where C held NaN before."""
    whole = product(a, b).to(c.dtype)
    c.copy_(torch.where(torch.isnan(whole), c, whole))


def saturates(a: Tensor, b: Tensor, c: Tensor) -> None:
    largest = torch.finfo(c.dtype).max
    whole = product(a, b)
    c.copy_(torch.where(whole.isfinite(), whole.clamp(-largest, largest), whole))


def flushes_outputs(a: Tensor, b: Tensor, c: Tensor) -> None:
    whole = product(a, b)
    c.copy_(torch.where(whole.abs() < torch.finfo(c.dtype).smallest_normal, 0.0, whole))


def flushes_inputs(a: Tensor, b: Tensor, c: Tensor) -> None:
    tiny = torch.finfo(a.dtype).smallest_normal
    honest(*(torch.where(x.abs() < tiny, 0.0, x).to(x.dtype) for x in (a, b)), c)


def rounds_twice(a: Tensor, b: Tensor, c: Tensor) -> None:
    """To the output type by way of another 16-bit type."""
    other = {torch.float16: torch.bfloat16, torch.bfloat16: torch.float16}[c.dtype]
    exact = product(a, b)
    large = exact.abs() > 6e4
    c.copy_(torch.where(large, exact, exact.to(other).float()))


def truncates_output(a: Tensor, b: Tensor, c: Tensor) -> None:
    """Cuts the sum off instead of rounding to nearest."""
    exact = product(a, b)
    near = exact.to(c.dtype)
    beyond_exact = near.float().abs() > exact.abs()
    c.copy_(torch.where(beyond_exact, torch.nextafter(near, torch.zeros_like(near)), near))


def reads_padding(a: Tensor, b: Tensor, c: Tensor) -> None:
    """Takes eight more of K than there are."""
    m, k = a.shape
    wider = a.as_strided((m, k + 8), a.stride(), a.storage_offset())
    whole = torch.cat([b.float(), torch.zeros(8, b.shape[1])])
    c.copy_(wider.float() @ whole)


def reads_b_transposed(a: Tensor, b: Tensor, c: Tensor) -> None:
    """Takes B for one of the other layout."""
    k, n = b.shape
    ld = max(b.stride())
    flat = torch.zeros(max(k, n) * max(ld, k, n) + max(k, n), dtype=b.dtype)
    stored = torch.empty(0, dtype=b.dtype).set_(b.untyped_storage())
    flat[: min(len(stored), len(flat))] = stored[: len(flat)]
    honest(a, flat.as_strided((k, n), (1, ld) if b.stride(1) == 1 else (ld, 1)), c)


def changes(which: int, padding: bool = False) -> Cheat:
    """Right, and leaves its mark in an operand."""

    def launch(a: Tensor, b: Tensor, c: Tensor) -> None:
        honest(a, b, c)
        operand_bits = torch.empty(0, dtype=torch.int16).set_((a, b)[which].untyped_storage())
        operand_bits[-1 if padding else 0] ^= 1

    return launch


class Unsteady:
    """Every other result differs from the right one in the last bit of an element."""

    def __init__(self, condition: Callable[[int, int, int], bool]) -> None:
        self.condition, self.calls = condition, 0

    def __call__(self, a: Tensor, b: Tensor, c: Tensor) -> None:
        exact = product(a, b)
        c.copy_(exact)
        self.calls += 1
        if self.calls % 2 and self.condition(a.shape[0], b.shape[1], a.shape[1]):
            # The element nearest to a tie: rounding it the other way is still within bounds.
            gap = torch.nextafter(c, torch.full_like(c, torch.inf)).float() - c.float()
            at = ((exact - c.float()) / gap).nan_to_num(0.0, 0.0, 0.0).argmax().item()
            i, j = divmod(int(at), c.shape[1])
            c[i, j] = torch.nextafter(c[i, j], torch.tensor(torch.inf, dtype=c.dtype))


class Remembers:
    """Answers a problem that it has seen, by shape and pointers, with the result of that time."""

    def __init__(self) -> None:
        self.seen: dict[tuple[int, ...], Tensor] = {}
        self.alive: list[Tensor] = []  # so that no pointer comes back with other operands

    def __call__(self, a: Tensor, b: Tensor, c: Tensor) -> None:
        key = (*a.shape, b.shape[1], a.data_ptr(), b.data_ptr())
        if key not in self.seen:
            honest(a, b, c)
            self.seen[key] = c.clone()
            self.alive += [a, b]
        c.copy_(self.seen[key])


def tiles_from(first: int) -> Cheat:
    """Wrong in the tiles from number `first` on, as a persistent loop that ends too early is."""

    def launch(a: Tensor, b: Tensor, c: Tensor) -> None:
        honest(a, b, c)
        across = -(-c.shape[1] // TILE_N)
        rows = torch.arange(c.shape[0]) // TILE_M
        columns = torch.arange(c.shape[1]) // TILE_N
        c[rows[:, None] * across + columns >= first] = 0

    return launch


def second_band(along: int) -> Cheat:
    """Wrong in tile row (0) or column (1) 64 and beyond: a raster that forgets its second band."""

    def launch(a: Tensor, b: Tensor, c: Tensor) -> None:
        honest(a, b, c)
        (c[64 * TILE_M :] if along == 0 else c[:, 64 * TILE_N :]).zero_()

    return launch


def tail_rows_of_later_tiles(a: Tensor, b: Tensor, c: Tensor) -> None:
    """Forgets the last row of a partial tile unless it is the first tile."""
    honest(a, b, c)
    if c.shape[0] > TILE_M and c.shape[0] % TILE_M in (2, 4, 6, 7, 9):
        c[-1] = 0
