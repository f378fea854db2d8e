"""Programs that call torch alone are recorded under enabled(), by every way to a product, and
captures while they are captured."""

from __future__ import annotations

import pytest
import torch

import hgemm_packs
from hgemm_packs.problem import Problem
from tests.cpu.program.common import SIDE, operands
from tests.cpu.program.test_enabled import WAYS
from tests.fake_driver import Started


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_a_product_is_recorded_once(served: Started, way: str) -> None:
    a, b = operands()
    with hgemm_packs.enabled(), hgemm_packs.record_shapes() as seen:
        WAYS[way](a, b)
    WAYS[way](a, b)
    ((problem, calls),) = seen.items()
    assert (problem.m, problem.n, problem.k, problem.dtype, calls) == (SIDE, SIDE, SIDE, "f16", 1)


def test_a_sum_is_recorded_with_what_it_adds(served: Started) -> None:
    a, b = operands()
    with hgemm_packs.enabled(), hgemm_packs.record_shapes() as seen:
        torch.addmm(torch.ones(SIDE, dtype=a.dtype), a, b)
    assert dict(seen) == {Problem(SIDE, SIDE, SIDE, "nn", "f16", epilogue="bias"): 1}


def test_a_capture_is_recorded_once(served: Started) -> None:
    a, b = operands()
    served.matmul(a, b)
    served.set_stream(7)
    served.capture(1)
    with hgemm_packs.record_shapes() as seen:
        served.matmul(a, b)
    served.capture(0)
    assert dict(seen) == {Problem(SIDE, SIDE, SIDE, "nn", "f16"): 1}
