"""Every kernel with an epilogue that the table names, through `linear` as users call it."""

from __future__ import annotations

import pytest
import torch

import hgemm_packs
from hgemm_packs.nn.functional import ACTIVATIONS
from hgemm_packs.problem import Problem
from tests.gpu.conftest import Counts, Wins, exact
from tests.gpu.rows.test_epilogues import assert_close

pytestmark = pytest.mark.gpu


def call(p: Problem, x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What `linear` makes of the problem, and the same in float64."""
    wanted = x.double() @ weight.double().t()
    if p.epilogue == "residual":
        more = (torch.arange(p.m * p.n, device="cuda") % 29 - 14).to(x.dtype).view(p.m, p.n)
        return hgemm_packs.linear(x, weight, residual=more), wanted + more.double()
    if p.epilogue == "gated_silu":
        wanted = ACTIVATIONS[p.epilogue](wanted)
        return hgemm_packs.linear(x, weight, activation=p.epilogue), wanted
    bias = (torch.arange(p.n, device="cuda") % 23 - 9).to(x.dtype)
    activation = p.epilogue.partition("_")[2] or None
    wanted += bias.double()
    if activation:
        wanted = ACTIVATIONS[activation](wanted)
    return hgemm_packs.linear(x, weight, bias, activation), wanted


def test_every_kernel_with_an_epilogue() -> None:
    wins = Wins(with_epilogue=True)
    seen = set()
    for p in wins.of_each_kernel():
        a, b = exact(p)
        counts = Counts()
        with torch.inference_mode():
            y, wanted = call(p, a, b.t())
        counts.only_hits(1)
        if p.epilogue in ("bias", "residual", "bias_relu"):
            assert torch.equal(y, wanted.to(y.dtype)), p
        else:
            assert_close(y, wanted, p.dtype)
        seen.add(p.epilogue)
    assert seen >= {"bias", "residual", "gated_silu"}
