"""Counters of Nsight Compute on a real GPU: plausible ones, or the reason why there are none."""

from __future__ import annotations

import shutil

import pytest

from hgemm_packs.generator.core.space import Space
from hgemm_packs.generator.devices import counters
from hgemm_packs.generator.devices.counters import METRICS, STALLS
from hgemm_packs.generator.evaluator.evaluator import Evaluator
from hgemm_packs.generator.gates.plausibility import compulsory_bytes
from hgemm_packs.problem import Problem

pytestmark = pytest.mark.gpu

PROBLEM = Problem(2048, 2048, 2048, "nt", "f16")


@pytest.mark.parametrize("family", ["sm90_wgmma", "sm90_oneshot"])
def test_a_gpu_counts_or_says_why_not(family: str) -> None:
    choice = next(each for each in Space(PROBLEM).core if each.family == family)
    evaluator = Evaluator(0)
    found = evaluator.counters(choice, PROBLEM)
    print(found or evaluator.no_counters)
    if found is None:
        missing = shutil.which(counters.PROGRAM) is None
        expected = "no ncu on the PATH" if missing else "the driver permits no counters here"
        assert evaluator.no_counters.startswith(expected), evaluator.no_counters
        return
    assert evaluator.no_counters == "" and set(found.numbers) == set(METRICS), found
    for name, value in found.numbers.items():
        assert 0.0 <= value <= 100.5 or not name.endswith("_percent"), (name, value)
    numbers = found.numbers
    assert 2 * PROBLEM.m * PROBLEM.n * PROBLEM.k / numbers["us"] < 1.2e9  # no GPU of this kind does
    assert numbers["us"] < 10_000 and numbers["tensor_percent"] > 1.0
    # A and B come from memory, for the caches are cold; C may stay in L2.
    assert 0.5 * compulsory_bytes(PROBLEM) < numbers["dram_bytes"] < 20 * compulsory_bytes(PROBLEM)
    assert 16 <= numbers["registers"] <= 255
    (first, most), (second, less) = found.stalls
    assert {first, second} <= set(STALLS) and 0.0 < less <= most and most + less <= 100.01


def test_a_program_under_ncu_that_fails_is_a_reason() -> None:
    """The driver refuses nothing here: the kernel is for problems of another layout."""
    choice = next(each for each in Space(PROBLEM).core if each.family == "sm90_wgmma")
    evaluator = Evaluator(0)
    assert evaluator.counters(choice, Problem(2048, 2048, 2048, "tn", "f16")) is None
    assert evaluator.no_counters and "\n" not in evaluator.no_counters
