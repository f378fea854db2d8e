"""Operands with gaps between rows, at any address, and of any size: kernels of the stand-in driver
that promise less than 16 bytes run them, against the float64 product."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hgemm_packs import launcher
from hgemm_packs.pack.manifest import DimRange
from hgemm_packs.problem import Problem
from tests import reference
from tests.fake_driver import Started

ANY = {name: DimRange(1, 4096, 1) for name in "mnk"}
TYPES = {"f16": torch.float16, "bf16": torch.bfloat16}


def serve(
    fake: Started, layout: str = "nn", align: tuple[int, ...] = (2, 2, 2), **more: Any
) -> None:
    fake.serve(more.pop("params", "ptr_v1"), layout, align=align, **ANY, **more)


def hits(fake: Started, count: int = 1) -> None:
    counted = launcher.counters()
    assert (counted["hits"], counted["fallbacks"]) == (count, 0), counted


def put(x: torch.Tensor, gap: int = 0, first: int = 0) -> torch.Tensor:
    """The same matrix, stored as it is, with a gap behind each row and `first` elements ahead."""
    stored = x if x.stride(1) == 1 else x.t()
    rows, lead = stored.shape[0], stored.shape[1] + gap
    memory = torch.full((first + rows * lead,), torch.nan, dtype=x.dtype)
    there = memory[first:].as_strided(stored.shape, (lead, 1), first)
    there.copy_(stored)
    return there if x.stride(1) == 1 else there.t()


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("sizes", [(65, 33, 47), (64, 36, 31), (7, 9, 11)])
def test_odd_sizes(fake: Started, layout: str, dtype: str, sizes: tuple[int, int, int]) -> None:
    serve(fake, layout, dtype=dtype)
    a, b = reference.cancelling(*sizes, layout, TYPES[dtype])
    reference.assert_exact(fake.matmul(a, b), a, b)
    hits(fake)
    assert fake.asked == [Problem(*sizes, layout, dtype)]


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize(("gap", "first"), [(8, 0), (3, 0), (0, 1), (6, 4), (0, 2)])
def test_gaps_and_addresses(fake: Started, layout: str, gap: int, first: int) -> None:
    serve(fake, layout)
    a, b = reference.cancelling(64, 48, 32, layout, torch.float16)
    for here, there in ((put(a, gap, first), b), (a, put(b, gap, first))):
        reference.assert_exact(fake.matmul(here, there), a, b)
    hits(fake, 2)
    at = {1: 2, 2: 4, 4: 8}.get(first, 16)
    found = min(at, {3: 2, 6: 4}.get(gap, 16))
    assert [problem.base for problem in fake.asked] == [(found, 16, 16), (16, found, 16)]
    assert {problem.packed for problem in fake.asked} == {gap == 0}


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_another_stride_is_another_plan(fake: Started, layout: str) -> None:
    """A plan binds strides. Were they no part of its key, the second call here would read A, or B,
    by the strides of the first, and be wrong without a word."""
    serve(fake, layout)
    a, b = reference.cancelling(24, 40, 56, layout, torch.float16)
    gaps = [(16, 16), (32, 16), (16, 32), (16, 16), (32, 32)]
    for of_a, of_b in gaps:
        reference.assert_exact(fake.matmul(put(a, of_a), put(b, of_b)), a, b)
    hits(fake, len(gaps))
    assert len(fake.asked) == len({*gaps}) and len({*fake.asked}) == 1


def test_strides_without_a_kernel_are_asked_for_once(fake: Started) -> None:
    """A cache that grows has other strides at each step: Python is not asked for each of them."""
    a, b = reference.cancelling(24, 40, 56, "nn", torch.float16)
    for gap in range(16, 160, 16):
        reference.assert_exact(fake.matmul(put(a, gap), b), a, b)
    assert len(fake.asked) == 1 and fake.fallbacks() == {"strided": 9}


def test_packed_operands_have_a_key_of_their_own(fake: Started) -> None:
    serve(fake)
    a, b = reference.cancelling(24, 40, 56, "nn", torch.float16)
    for here in (a, put(a, 16), a, put(a, 0, 1), put(a, 16)):
        reference.assert_exact(fake.matmul(here, b), a, b)
    hits(fake, 5)
    assert [(each.base, each.packed) for each in fake.asked] == [
        ((16, 16, 16), True),
        ((16, 16, 16), False),
        ((2, 16, 16), True),
    ]


@pytest.mark.parametrize(
    ("gap", "first", "align", "why"),
    [
        (0, 1, (2, 2, 2), None),
        (5, 0, (2, 2, 2), None),
        (8, 8, (16, 16, 8), None),
        (4, 4, (16, 16, 8), None),
        (4, 2, (16, 16, 8), "unaligned"),
        (2, 0, (16, 16, 8), "unaligned"),
        (8, 0, (16, 16, 16), "strided"),
        (0, 4, (16, 16, 16), "unaligned"),
    ],
)
def test_an_output_is_written_where_the_kernel_can(
    fake: Started, gap: int, first: int, align: tuple[int, ...], why: str | None
) -> None:
    serve(fake, align=align)
    a, b = reference.cancelling(24, 40, 56, "nn", torch.float16)
    out = put(torch.full((24, 40), torch.nan, dtype=torch.float16), gap, first)
    memory = torch.empty(0, dtype=torch.float16).set_(out.untyped_storage())
    assert fake.matmul(a, b, out=out) is out
    reference.assert_exact(out, a, b)
    assert fake.fallbacks() == ({} if why is None else {why: 1})
    assert int(torch.isnan(memory).sum()) == memory.numel() - 24 * 40, "written between rows"


def test_a_plan_serves_outputs_of_every_stride(fake: Started) -> None:
    """The stride of C is no part of a plan that has it as a parameter."""
    serve(fake)
    a, b = reference.cancelling(24, 40, 56, "nn", torch.float16)
    for gap in (0, 3, 8, 0):
        out = put(torch.full((24, 40), torch.nan, dtype=torch.float16), gap)
        reference.assert_exact(fake.matmul(a, b, out=out), a, b)
    reference.assert_exact(fake.matmul(a, b), a, b)
    hits(fake, 5)
    assert len(fake.asked) == 1


@pytest.mark.parametrize("operand", ["a", "b"])
def test_an_output_within_the_gaps_of_an_operand_is_torchs(fake: Started, operand: str) -> None:
    """C between the rows of A has no byte in common with it; that takes a look at every row, so
    torch decides."""
    serve(fake)
    a, b = reference.cancelling(16, 16, 16, "nn", torch.float16)
    memory = torch.zeros(16, 64, dtype=torch.float16)
    held = memory[:, :16].copy_(a if operand == "a" else b)
    pair = (held, b) if operand == "a" else (a, held)
    out = memory[:, 32:48]
    reference.assert_exact(fake.matmul(*pair, out=out), a, b)
    assert fake.fallbacks() == {"out": 1}


@pytest.mark.parametrize("align", [(16, 2, 2), (2, 8, 2), (4, 4, 4)])
def test_a_kernel_gets_no_operand_that_is_aligned_to_less(
    fake: Started, align: tuple[int, ...]
) -> None:
    serve(fake, align=align)
    a, b = reference.cancelling(24, 40, 56, "nn", torch.float16)
    reference.assert_exact(fake.matmul(put(a, 0, 1), put(b, 0, 2)), a, b)
    assert fake.fallbacks() == {"not_measured": 1}


def test_a_bias(fake: Started) -> None:
    serve(fake, "nt", params="ptr_v1_addend")
    a, b = reference.cancelling(24, 41, 57, "nt", torch.float16)
    bias = torch.arange(41, dtype=torch.float16)
    got = fake.linear(put(a, 2), b.t(), bias)
    exact = (a.double() @ b.double() + bias.double()).half()
    assert torch.equal(got, exact)
    hits(fake)
