"""Programmatic dependent launch on a GPU: captured as such, and right among any neighbours."""

from __future__ import annotations

import pytest
import torch

from hgemm_packs import launcher, matmul, select, timing
from hgemm_packs.generator.arms import Arm
from hgemm_packs.generator.measure.agreement import Agreement, edges
from hgemm_packs.operands import operands
from hgemm_packs.problem import Problem
from hgemm_packs.replay import stage
from tests.gpu.conftest import Wins

pytestmark = pytest.mark.gpu


def both(problem: Problem) -> dict[str, Arm]:
    """The kernel of a win, launched plainly and programmatically."""
    choice = select.resolve(problem, 0)
    assert choice.pack is not None and choice.kernel is not None
    image = choice.pack.image(choice.kernel)
    return {
        name: Arm(launcher.load(0, choice.kernel, image, name == "pdl"))
        for name in ("plain", "pdl")
    }


def test_a_capture_has_programmatic_edges(wins: Wins) -> None:
    problem = wins.problems[0]
    arms, one = both(problem), operands(problem, 0)[0]
    assert edges(arms["pdl"], one, stage(0)) == {"programmatic": 2, "full": 1}
    assert edges(arms["plain"], one, stage(0)) == {"programmatic": 0, "full": 3}


def test_matmul_is_dependent_behind_our_own_kernels_only(wins: Wins) -> None:
    """Of four calls in a capture, ours, ours, torch's and ours, the second alone."""
    marked = {False: 0, True: 0}  # by whether a workspace is asked for, too
    for problem in wins.of_each_kernel():
        choice = select.resolve(problem, 0)
        assert choice.kernel is not None and choice.row is not None
        spaced = choice.kernel.workspace_bytes > 0
        marked[spaced] += choice.row.pdl
        if not choice.row.pdl or marked[spaced] > 3:
            continue
        one = operands(problem, 0)[0]
        found = edges(lambda a, b, c: matmul(a, b, out=c), one, stage(0))
        assert found == {"programmatic": 1, "full": 2}, problem
        assert torch.equal(one.c, matmul(one.a, one.b)), problem
    assert all(marked.values())


def test_every_kernel_gives_the_same_bits_as_launched_plainly(wins: Wins) -> None:
    """Back to back on one C, on many in turn, and between torch's elementwise kernels."""
    for problem in wins.of_each_kernel():
        arms = both(problem)
        for protocol in ("hot", "cold", "chained"):
            agree = Agreement(problem, protocol, 1, seed=3)
            timing.compare(arms, problem, protocol=protocol, blocks=1, target_us=50, between=agree)
            assert agree.wrong == [], (problem, wins.kernels[problem])
