"""The plausibility gate against the ceilings of a made-up machine."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from hgemm_packs.generator.core.spec import DeviceFacts, Status
from hgemm_packs.generator.gates import plausibility
from hgemm_packs.problem import Problem

#: 1000 TFLOP/s and 4000 GB/s: arithmetic binds from 250 flops a byte on.
FACTS = DeviceFacts("made up", "sm_90a", 132, 50_000_000, peak_tflops=1000.0, peak_gbps=4000.0)
LARGE = Problem(4096, 4096, 4096, "nt", "f16")  # 137.4 us of arithmetic
STREAM = Problem(8, 100_000, 5_000, "nt", "f16")  # 1.00168 GB of weights, activations and results


def test_floors() -> None:
    arithmetic = 2 * 4096**3 / 1e15 * 1e6
    assert plausibility.floor_us(LARGE, FACTS, cold=False) == pytest.approx(arithmetic)
    assert plausibility.floor_us(LARGE, FACTS, cold=True) == pytest.approx(arithmetic)
    touched = 2 * (8 * 5_000 + 5_000 * 100_000 + 8 * 100_000)
    assert plausibility.compulsory_bytes(STREAM) == touched
    traffic = (touched - 50_000_000) / 4e12 * 1e6
    assert plausibility.floor_us(STREAM, FACTS, cold=True) == pytest.approx(traffic)
    assert plausibility.floor_us(STREAM, FACTS, cold=False) == pytest.approx(8.0)
    # 24 MB in sets that rotate: a third of it may stay in a cache of 50 MB.
    rotated = Problem(8, 4_000, 3_000, "nt", "f16")
    third = 2 * (8 * 3_000 + 3_000 * 4_000 + 8 * 4_000) * 2 / 3
    assert plausibility.floor_us(rotated, FACTS, cold=True) == pytest.approx(third / 4e12 * 1e6)


@pytest.mark.parametrize("problem", [LARGE, STREAM])
def test_a_time_below_the_floor_is_no_record(problem: Problem) -> None:
    hot = plausibility.floor_us(problem, FACTS, cold=False)
    cold = plausibility.floor_us(problem, FACTS, cold=True)
    good = plausibility.check(problem, 0.981 * hot, 0.981 * cold, FACTS)
    assert (good.gate, good.status, good.detail) == ("plausibility", Status.OK, "")
    assert good.evidence["floor_cold_us"] == cold
    assert good.evidence["ceilings"] is True
    bad = plausibility.check(problem, 0.979 * hot, 0.979 * cold, FACTS)
    assert bad.status is Status.HACK
    hot_words, cold_words = bad.detail.split("; ")
    assert hot_words == f"roofline: hot {0.979 * hot:.3f} us, the machine needs {hot:.3f}"
    assert cold_words.startswith("roofline: cold ")
    only = plausibility.check(problem, hot, 0.5 * cold, FACTS)
    assert (only.status, only.detail.count("roofline")) == (Status.HACK, 1)
    assert plausibility.check(problem, hot, math.inf, FACTS).passed, "cold was not measured"


def test_hot_figures_may_pass_the_memory() -> None:
    """Operands stay in L2: only arithmetic bounds a hot time."""
    cold = plausibility.floor_us(STREAM, FACTS, cold=True)
    assert plausibility.check(STREAM, 0.3 * cold, cold, FACTS).passed
    assert not plausibility.check(STREAM, cold, 0.3 * cold, FACTS).passed


@pytest.mark.parametrize("us", [0.0, -1.0, math.nan])
def test_what_is_no_time(us: float) -> None:
    for times in ((us, 200.0), (200.0, us)):
        verdict = plausibility.check(LARGE, *times, FACTS)
        assert verdict.status is Status.HACK
        assert verdict.detail.startswith("time: ")


def test_without_ceilings_nothing_is_vetoed_and_that_is_told() -> None:
    unknown = replace(FACTS, peak_tflops=0.0, peak_gbps=0.0)
    verdict = plausibility.check(LARGE, 0.001, 0.001, unknown, {"hot": 500.0})
    assert verdict.passed
    assert verdict.evidence["ceilings"] is False
    assert verdict.evidence["rerun"] is False


def test_much_faster_than_every_baseline_is_measured_again() -> None:
    def rerun(problem: Problem, us: float, baseline: float) -> bool:
        verdict = plausibility.check(problem, us, 2 * us, FACTS, {"hot": baseline, "cold": 2 * us})
        assert verdict.passed
        return bool(verdict.evidence["rerun"])

    assert not rerun(LARGE, 150.0, 1.29 * 150.0)
    assert rerun(LARGE, 150.0, 1.31 * 150.0)
    small = Problem(64, 64, 64, "nt", "f16")  # 21 flops a byte
    assert not rerun(small, 1.5, 3.0), "where latency binds such wins are usual"
    assert plausibility.suspect(LARGE, 150.0, 200.0, FACTS)
    cold = plausibility.check(LARGE, 150.0, 150.0, FACTS, {"hot": 160.0, "cold": 210.0})
    assert cold.evidence["rerun"] is True


def test_a_veto_needs_no_second_run() -> None:
    verdict = plausibility.check(LARGE, 60.0, 150.0, FACTS, {"hot": 160.0, "cold": 160.0})
    assert verdict.status is Status.HACK
    assert verdict.evidence["rerun"] is False
