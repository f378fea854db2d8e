"""Every kernel of the pack through matmul, on one of its own problems, and the calls around it."""

from __future__ import annotations

import pytest
import torch

from hgemm_packs import matmul
from tests import reference
from tests.gpu.conftest import DTYPES, Counts, Wins, exact, normal

pytestmark = pytest.mark.gpu


def test_every_kernel(wins: Wins) -> None:
    for p in wins.of_each_kernel():
        counts = Counts()
        a, b = exact(p)
        reference.assert_exact(matmul(a, b), a, b)
        a, b = normal(p)
        out = torch.full((p.m, p.n), torch.nan, dtype=a.dtype, device="cuda")
        assert matmul(a, b, out=out) is out
        reference.assert_product(out, a, b)
        assert counts.moved() == {"hits": 2, "launches": 2}, (p, wins.kernels[p])


def test_new_tensors_of_one_geometry(wins: Wins) -> None:
    # Tensor maps are encoded once and re-pointed: every tensor of every call must be the one meant.
    for p in wins.some(4):
        sets = [exact(p, seed=seed) for seed in range(6)]
        outs = [
            torch.full((p.m, p.n), torch.nan, dtype=sets[0][0].dtype, device="cuda") for _ in sets
        ]
        counts = Counts()
        for (a, b), out in zip(sets, outs, strict=True):
            matmul(a, b, out=out)
        results = [matmul(a, b) for a, b in reversed(sets)]
        for (a, b), out, result in zip(sets, outs, reversed(results), strict=True):
            reference.assert_exact(out, a, b)
            reference.assert_exact(result, a, b)
        counts.only_hits(2 * len(sets))


def test_leading_dimensions(wins: Wins) -> None:
    p = next(p for p in wins.problems if p.layout[0] == "n" and p.m % 4 == 0)
    a, b = exact(p)
    x = a.view(2, 2, p.m // 4, p.k)
    counts = Counts()
    c = matmul(x, b)
    out = torch.full_like(c, torch.nan)
    assert c.shape == (2, 2, p.m // 4, p.n) and matmul(x, b, out=out) is out
    reference.assert_exact(c.view(p.m, p.n), a, b)
    reference.assert_exact(out.view(p.m, p.n), a, b)
    counts.only_hits(2)


def test_a_linear_layer(wins: Wins) -> None:
    p = wins.some(1, layout="nt")[0]
    a, b = exact(p)
    linear = torch.nn.Linear(p.k, p.n, bias=False, dtype=a.dtype, device="cuda")
    with torch.no_grad():
        linear.weight.copy_(b.t())
        counts = Counts()
        reference.assert_exact(matmul(a, linear.weight.t()), a, b)
        counts.only_hits(1)
    matmul(a, linear.weight.t()).sum().backward()
    ones = torch.ones(p.m, p.n, dtype=a.dtype, device="cuda")
    reference.assert_product(linear.weight.grad, ones.t(), a)


def test_outputs_are_ordinary_tensors(wins: Wins) -> None:
    p = wins.some(1)[0]
    a, b = exact(p)
    matmul(a, b)
    before = torch.cuda.memory_allocated()
    c = matmul(a, b)
    assert torch.cuda.memory_allocated() - before == -(-c.nbytes // 512) * 512
    assert c.untyped_storage().resizable() and c._version == 0 and not c.is_inference()
    reference.assert_exact(c, a, b)
    del c
    assert torch.cuda.memory_allocated() == before


@pytest.mark.usefixtures("unpredicted")
def test_autocast_and_unmeasured_problems(wins: Wins) -> None:
    p = wins.some(1, dtype="f16")[0]
    a, b = exact(p)
    counts = Counts()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert torch.equal(matmul(a, b), torch.matmul(a, b))
    a, b = reference.cancelling(37, 41, 43, "nn", DTYPES[p.dtype], device="cuda")
    reference.assert_exact(matmul(a, b), a, b)
    assert counts.moved() == {"fallbacks": 2, "fallback mode": 1, "fallback unaligned": 1}


def test_operands_on_different_devices(wins: Wins) -> None:
    p = wins.some(1)[0]
    a, b = exact(p)
    reference.assert_exact(matmul(a, b), a, b)
    for x, y in ((a, b.cpu()), (a.cpu(), b)):
        with pytest.raises(RuntimeError) as theirs:
            torch.matmul(x, y)
        with pytest.raises(RuntimeError) as ours:
            matmul(x, y)
        assert str(ours.value) == str(theirs.value)
