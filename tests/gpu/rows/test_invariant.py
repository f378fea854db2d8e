"""The batch-invariant mode on the GPU: bits of a row at any M and place, in graphs, with a bias, in
gradients, and no kernel that an M brings along."""

from __future__ import annotations

import pytest
import torch

import hgemm_packs
from hgemm_packs import launcher, matmul, select
from hgemm_packs.errors import InvariantError
from hgemm_packs.nn import Linear
from hgemm_packs.pack import batch_invariant
from tests import reference
from tests.gpu.conftest import DTYPES, Counts

pytestmark = pytest.mark.gpu

MOST = 1031
VALUES = (1, 2, 3, 5, 8, 13, 16, 17, 31, 33, 64, 65, 100, 127, 129, 255, 256, 300, 511, 777, 1024)
#: N and K; the last three are in no table, and no multiples of any tile.
LAYERS = ((1024, 4096), (4096, 4096), (3584, 18944), (1048, 2888), (40, 72), (8, 8))


def same(c: torch.Tensor, wanted: torch.Tensor) -> bool:
    return torch.equal(c.view(torch.int16), wanted.view(torch.int16))


def operands(n: int, k: int, layout: str, dtype: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of zeros are among those of A: sums of no sign of their own."""
    a, b = reference.normal(MOST + 1, n, k, layout, DTYPES[dtype], device="cuda", seed=n)
    a[::7] = 0
    a[3] = -0.0
    return a, b


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", ["nn", "nt"])
@pytest.mark.parametrize(("n", "k"), LAYERS)
def test_a_row_has_its_bits_at_every_m_and_place(n: int, k: int, layout: str, dtype: str) -> None:
    a, b = operands(n, k, layout, dtype)
    counts = Counts()
    with hgemm_packs.options(batch_invariant=True):
        whole = matmul(a, b)
        reference.assert_product(whole, a, b)
        for m in VALUES:
            assert same(matmul(a[:m], b), whole[:m]), m
            start = (m * 37) % (MOST - m + 1)
            assert same(matmul(a[start : start + m], b), whole[start : start + m]), m
        order = torch.randperm(len(a), device="cuda")
        assert same(matmul(a[order], b), whole[order])
        others = torch.randn_like(a)
        others[5] = a[5]
        assert same(matmul(others, b)[5], whole[5])
        for _ in range(5):
            assert same(matmul(a, b), whole)
    counts.only_hits(2 * len(VALUES) + 8)


@pytest.mark.parametrize("layout", ["tn", "tt"])
def test_operands_stored_transposed(layout: str) -> None:
    a, b = operands(2048, 1024, layout, "bf16")
    with hgemm_packs.options(batch_invariant=True):
        whole = matmul(a[:1024].t().contiguous().t(), b)
        reference.assert_product(whole, a[:1024], b)
        for m in (8, 64, 136, 1000):
            assert same(matmul(a[:m].t().contiguous().t(), b), whole[:m])


def test_several_kernels_run_and_all_add_alike() -> None:
    """M does choose: else the test above would say nothing of two kernels."""
    a, b = operands(4096, 4096, "nt", "bf16")
    names = set()
    for m in VALUES:
        problem = launcher.describe(a[:m], b)
        assert not isinstance(problem, str)
        entry = select.resolve(problem, 0, invariant=True).kernel
        assert entry is not None and batch_invariant.adds_in_order(entry)
        names.add(entry.name)
    assert len(names) > 3


@pytest.mark.parametrize("dtype", DTYPES)
def test_in_a_cuda_graph(dtype: str) -> None:
    a, b = operands(4096, 4096, "nt", dtype)
    layer = Linear(4096, 4096, bias=False, device="cuda", dtype=a.dtype)
    layer.weight.data = b.t()
    with hgemm_packs.options(batch_invariant=True), torch.inference_mode():
        whole = layer(a)
        hgemm_packs.warmup(layer, [3, 48])
        for m in (3, 48):
            graph, out = torch.cuda.CUDAGraph(), None
            with torch.cuda.graph(graph):
                out = layer(a[:m])
            graph.replay()
            assert same(out, whole[:m])


def test_a_capture_without_a_warmup_raises() -> None:
    a, b = operands(4096, 4096, "nn", "f16")
    fresh = a[:619]
    problem = launcher.describe(fresh, b)
    with hgemm_packs.options(batch_invariant=True):
        matmul(a, b)
        launcher.reset_table()
        # An M whose kernel another call has loaded is served; else the capture must not load it.
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                c = matmul(fresh, b)
            graph.replay()
            assert same(c, matmul(a, b)[:619])
        except InvariantError as error:
            assert "cold_capture" in str(error) and str(problem) in str(error)


def test_a_bias_and_what_follows() -> None:
    a, b = operands(4096, 4096, "nt", "bf16")
    bias = torch.randn(4096, device="cuda", dtype=a.dtype)
    with hgemm_packs.options(batch_invariant=True), torch.inference_mode():
        whole = hgemm_packs.linear(a, b.t(), bias, "silu", a[:, :4096])
        product = matmul(a, b)
        assert same(whole, torch.nn.functional.silu(product + bias) + a[:, :4096])
        for m in (1, 64, 777):
            part = hgemm_packs.linear(a[:m], b.t(), bias, "silu", a[:m, :4096])
            assert same(part, whole[:m])


def test_gradients_of_an_input_are_invariant_too() -> None:
    a, b = operands(1024, 4096, "nt", "bf16")
    w = b.t().clone().requires_grad_()
    grad = torch.randn(MOST + 1, 1024, device="cuda", dtype=a.dtype)
    found = []
    with hgemm_packs.options(batch_invariant=True):
        for m in (1032, 64):  # the gradient of w sums over M, a K that must be a multiple of 8
            x = a[:m].clone().requires_grad_()
            hgemm_packs.linear(x, w).backward(grad[:m])
            assert x.grad is not None
            found.append(x.grad)
    assert same(found[1], found[0][:64])
    reference.assert_product(found[0], grad, b.t().contiguous())


def test_torchs_own_products() -> None:
    a, b = operands(1024, 4096, "nt", "bf16")
    with hgemm_packs.enabled(), hgemm_packs.options(batch_invariant=True):
        whole = matmul(a, b)
        for m in (1, 64, 777):
            assert same(a[:m] @ b, whole[:m])
        with pytest.raises(RuntimeError, match=r"batch_invariant=True.*unaligned"):
            a[:, :4090].clone() @ b.t()[:, :4090].clone().t()
        reference.assert_product(a @ b, a, b)


def test_outside_the_mode_nothing_has_changed() -> None:
    a, b = operands(4096, 4096, "nt", "bf16")
    before = matmul(a[:64], b)
    with hgemm_packs.options(batch_invariant=True):
        matmul(a[:64], b)
    assert same(matmul(a[:64], b), before)
    with hgemm_packs.options(batch_invariant=True), pytest.raises(InvariantError, match="dtype"):
        matmul(a.float(), b.float())
