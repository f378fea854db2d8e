"""Timing on a real GPU: every baseline algorithm is right, replays measure what they claim."""

from __future__ import annotations

import pytest
import torch

from hgemm_packs.measure import baselines, timing
from hgemm_packs.measure.operands import Operands, operands
from hgemm_packs.problem import Problem

pytestmark = pytest.mark.gpu

# fp16 and bf16 output rounding, with room for split-K partials kept in the output type.
TOLERANCE = {"f16": 2e-3, "bf16": 1.2e-2}


def relative_error(one: Operands) -> float:
    exact = one.a.double() @ one.b.double()
    return float((one.c.double() - exact).norm() / exact.norm())


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("mnk", [(64, 96, 128), (256, 512, 4096), (136, 72, 200)])
def test_every_cublaslt_algorithm_is_right(
    mnk: tuple[int, int, int], layout: str, dtype: str
) -> None:
    problem = Problem(*mnk, layout, dtype)
    one = operands(problem, 0, seed=5)[0]
    arms = baselines.tuned_cublaslt(problem, one.a, one.b, one.c)
    assert arms
    for arm in arms:
        one.c.fill_(torch.nan)
        arm(one.a, one.b, one.c)
        assert relative_error(one) < TOLERANCE[dtype]


def test_a_replay_computes_every_set() -> None:
    problem = Problem(64, 64, 256, "nt", "f16")
    at = timing.stage(0)
    sets = operands(problem, 0, sets=5)
    with at.active():
        replay = timing.Replay(timing.torch_mm, sets, calls=10)
        at.stream.synchronize()
        for one in sets:
            one.c.fill_(torch.nan)
        replay.queue()
        at.stream.synchronize()
    assert replay.us() > 0
    for one in sets:
        assert relative_error(one) < TOLERANCE["f16"]
    replay.free()


def test_torch_against_itself_is_a_tie_and_more_work_is_slower() -> None:
    problem = Problem(1024, 1024, 1024, "nn", "f16")
    arms = {"torch": timing.torch_mm, "again": timing.torch_mm}
    same = timing.compare(arms, problem, blocks=30).ratio("torch", "again")
    assert 0.98 < same.value < 1.02

    def twice(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
        timing.torch_mm(a, b, c)
        timing.torch_mm(a, b, c)

    result = timing.compare({"torch": timing.torch_mm, "twice": twice}, problem, blocks=10)
    assert result.ratio("twice", "torch").value == pytest.approx(2.0, rel=0.15)


@pytest.mark.parametrize("mnk", [(64, 64, 64), (1024, 1024, 1024)])
def test_cold_is_not_faster_than_hot(mnk: tuple[int, int, int]) -> None:
    problem = Problem(*mnk, "nn", "f16")
    arms = {"torch": timing.torch_mm}
    hot = timing.compare(arms, problem, protocol="hot", blocks=10)
    cold = timing.compare(arms, problem, protocol="cold", blocks=10)
    assert cold.median_us("torch") > 0.98 * hot.median_us("torch")
    assert cold.sets > 1


def test_best_cublaslt_is_no_slower_than_torch() -> None:
    problem = Problem(512, 512, 2048, "nn", "f16")
    tuned = baselines.best_cublaslt(problem)
    assert tuned is not None and tuned.algorithms >= 4
    result = timing.compare({"torch": timing.torch_mm, "lt": tuned.hot}, problem, blocks=20)
    assert result.ratio("torch", "lt").value > 0.97
