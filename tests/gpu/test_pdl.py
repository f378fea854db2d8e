"""Programmatic dependent launch on a GPU: captured as such, and right among any neighbours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

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
    one = operands(problem, 0)[0]
    for name, arm in both(problem).items():
        found = edges([arm, arm, arm, timing.feed], one, stage(0))
        assert found == {"programmatic": 2 * (name == "pdl"), "full": 3 - 2 * (name == "pdl")}


def into(c: torch.Tensor, arm: Arm) -> Callable[[torch.Tensor, torch.Tensor, torch.Tensor], None]:
    return lambda a, b, _: arm(a, b, c)


def test_a_kernel_that_reads_ahead_stays_clear_of_what_is_written(wins: Wins) -> None:
    """Said of one kernel for each parameter layout that does not: what it follows decides, as the
    driver's nodes have it. The last call reads as A what the one before it wrote."""
    met = set()
    for problem in wins.of_each_kernel():
        choice = select.resolve(problem, 0)
        assert choice.pack is not None and choice.kernel is not None
        entry, m, n, k = choice.kernel, problem.m, problem.n, problem.k
        if entry.param_layout in met:
            continue
        met.add(entry.param_layout)
        one = operands(problem, 0)[0]
        ahead = replace(entry, reads_ahead=True)
        arm = Arm(launcher.load(0, ahead, choice.pack.image(entry), True))
        shared = torch.zeros(m * max(n, k), dtype=one.a.dtype, device="cuda")
        flat, c = shared[: m * k], shared[: m * n].view(m, n)
        a = flat.view(m, k) if problem.layout[0] == "n" else flat.view(k, m).t()
        calls = [arm, arm, into(c, arm), lambda _, b, out, a=a, arm=arm: arm(a, b, out)]
        seen = 0 if entry.param_layout == "tma3_v1" else 2
        found = edges(calls, one, stage(0))
        assert found == {"programmatic": seen, "full": 3 - seen}, entry.name
    assert met - {"tma3_v1"}


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

        def ours(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> object:
            return matmul(a, b, out=c)

        found = edges([ours, ours, timing.feed, ours], one, stage(0))
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
