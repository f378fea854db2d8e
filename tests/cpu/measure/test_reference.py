"""The oracle itself: it accepts what fp32 accumulation gives and refuses everything cheaper."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import pytest
import torch

from tests import reference, shapes

LAYOUTS = ("nn", "nt", "tn", "tt")
DTYPES = (torch.float16, torch.bfloat16)
LENGTHS = (32, 64, 255, 1024, 4096)


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Hundreds of tiny products: waking threads for each costs more than the products."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def accumulate(
    a: torch.Tensor, b: torch.Tensor, acc: torch.dtype, *, order: str = "forward", splits: int = 1
) -> torch.Tensor:
    """a @ b in steps of 16 along K as tensor cores do it: exact within a step, rounded to `acc`
    after each."""
    k = a.shape[1]
    steps = [slice(i, min(i + 16, k)) for i in range(0, k, 16)]
    if order == "backward":
        steps = steps[::-1]
    partial = [torch.zeros((a.shape[0], b.shape[1]), dtype=acc) for _ in range(splits)]
    for index, step in enumerate(steps):
        into = index * splits // len(steps)
        product = a[:, step].double() @ b[step].double()
        partial[into] = (partial[into].double() + product).to(acc)
    total = partial[0]
    for more in partial[1:]:
        total = (total.double() + more.double()).to(acc)
    return total.to(a.dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_operands_lie_as_the_layout_says(layout: str, dtype: torch.dtype) -> None:
    for make in (reference.normal, reference.cancelling):
        a, b = make(24, 40, 64, layout, dtype)
        assert (tuple(a.shape), tuple(b.shape)) == ((24, 64), (64, 40))
        assert a.stride() == ((64, 1) if layout[0] == "n" else (1, 24))
        assert b.stride() == ((40, 1) if layout[1] == "n" else (1, 64))
        plain = make(24, 40, 64, "nn", dtype)
        assert torch.equal(a, plain[0]) and torch.equal(b, plain[1])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", LENGTHS)
def test_cancelling_operands_are_exact_in_fp32_in_any_order(k: int, dtype: torch.dtype) -> None:
    a, b = reference.cancelling(48, 40, k, "nn", dtype, seed=k)
    for order, splits in (("forward", 1), ("backward", 1), ("forward", 4)):
        c = accumulate(a, b, torch.float32, order=order, splits=splits)
        reference.assert_exact(c, a, b)
    assert float(reference.product(a.abs(), b.abs()).max()) < reference.EXACT_SUM
    assert 1 < float(reference.product(a, b).abs().max()) <= reference.EXACT_INT[dtype]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", LENGTHS)
def test_cancelling_operands_expose_16_bit_accumulation(k: int, dtype: torch.dtype) -> None:
    """Both halves must be in flight: at K = 32 that is one step each."""
    a, b = reference.cancelling(48, 40, k, "nn", dtype, seed=k)
    c = accumulate(a, b, dtype)
    wrong = (c.double() != reference.product(a, b)).double().mean().item()
    assert wrong > 0.5
    with pytest.raises(AssertionError, match="are wrong"):
        reference.assert_exact(c, a, b)


def test_cancelling_has_a_longest_k() -> None:
    a, b = reference.cancelling(4, 8, 16384, "nn", torch.float16)
    assert float(reference.product(a.abs(), b.abs()).max()) < reference.EXACT_SUM
    with pytest.raises(ValueError, match="too long"):
        reference.cancelling(1, 1, 2**23, "nn", torch.float16)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", LENGTHS)
def test_fp32_accumulation_passes(k: int, dtype: torch.dtype) -> None:
    a, b = reference.normal(64, 72, k, "nt", dtype, seed=k)
    reference.assert_product(accumulate(a, b, torch.float32), a, b)
    reference.assert_product((a.float() @ b.float()).to(dtype), a, b)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", [64, 1024, 4096])
def test_16_bit_accumulation_fails(k: int, dtype: torch.dtype) -> None:
    a, b = reference.normal(64, 72, k, "nn", dtype, seed=k)
    found = reference.errors(accumulate(a, b, dtype), a, b)
    assert not found.ok


def _one_element(c: torch.Tensor) -> None:
    c[3, 5] += 0.02 * c.abs().max()


def _last_row(c: torch.Tensor) -> None:
    c[-1] = 0


def _nan(c: torch.Tensor) -> None:
    c[0, 0] = math.nan


def _inf(c: torch.Tensor) -> None:
    c[0, 0] = math.inf


@pytest.mark.parametrize("spoil", [_one_element, _last_row, _nan, _inf])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_spoiled_result_fails(spoil: Callable[[torch.Tensor], None], dtype: torch.dtype) -> None:
    a, b = reference.normal(64, 72, 256, "nn", dtype)
    c = accumulate(a, b, torch.float32)
    reference.assert_product(c, a, b)
    spoil(c)
    with pytest.raises(AssertionError):
        reference.assert_product(c, a, b)


def test_a_missing_k_tail_fails() -> None:
    a, b = reference.normal(64, 72, 1032, "nn", torch.float16)
    with pytest.raises(AssertionError):
        reference.assert_product(accumulate(a[:, :1024], b[:1024], torch.float32), a, b)


def test_overflow_must_be_infinite_and_nan_must_stay() -> None:
    a = torch.full((2, 8), 200.0, dtype=torch.float16)
    b = torch.full((8, 8), 200.0, dtype=torch.float16)
    a[1, 0] = math.nan
    c = (a.float() @ b.float()).to(torch.float16)
    assert bool(c[0].isinf().all()) and bool(c[1].isnan().all())
    assert reference.errors(c, a, b).infinite == 0
    assert reference.errors(torch.full_like(c, 65504), a, b).infinite == 16


def test_empty_products() -> None:
    for m, n, k in ((0, 8, 8), (8, 0, 8), (8, 8, 0)):
        a, b = reference.normal(m, n, k, "nn", torch.float16)
        reference.assert_product(a @ b, a, b)
    a, b = reference.normal(8, 8, 0, "nn", torch.float16)
    with pytest.raises(AssertionError):
        reference.assert_product(torch.ones((8, 8), dtype=torch.float16), a, b)


def test_the_grid() -> None:
    every = list(shapes.grid())
    assert len(set(every)) == 1000
    assert every[0] == (64, 64, 64) and every[-1] == (16384, 16384, 16384)


@pytest.mark.parametrize(("tile_m", "tile_n"), [(64, 32), (128, 96), (256, 128), (16, 256)])
def test_remainders_meet_every_size_of_the_last_tile(tile_m: int, tile_n: int) -> None:
    found = shapes.remainders(tile_m, tile_n, 64)
    assert {m % tile_m for m, _, _ in found} == set(range(tile_m))
    assert {n % tile_n for _, n, _ in found} == set(range(0, tile_n, 8))
    assert len(found) == len(set(found))
    assert all(tile_m < m <= 2 * tile_m and tile_n < n <= 2 * tile_n for m, n, _ in found)


def test_shapes_below_one_tile() -> None:
    found = shapes.below_one_tile(128, 96, 64)
    assert {(1, 8, 64), (127, 88, 64), (64, 48, 64), (128, 8, 64), (1, 96, 64)} <= set(found)
    assert all(m <= 128 and n <= 96 and (m, n) != (128, 96) for m, n, _ in found)


def test_ring_lengths_go_round_the_ring() -> None:
    found = shapes.ring_lengths(64, 4)
    assert {8, 64, 128, 192, 256, 320, 768} <= set(found)
    assert {56, 72, 248, 264, 504, 520, 760, 776} <= set(found)
    assert max(found) == 776 and min(found) == 8
    assert shapes.ring_shapes(128, 64, [64, 128]) == [(129, 72, 64), (129, 72, 128)]
