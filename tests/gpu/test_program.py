"""Programs that call torch alone, on the GPU: kernels under `enabled()`, torch's bits elsewhere."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

import hgemm_packs
from hgemm_packs import matmul
from tests import opinfo, reference

from .conftest import Counts, Wins, exact

pytestmark = pytest.mark.gpu


def ways(a: torch.Tensor, b: torch.Tensor) -> dict[str, Callable[[], torch.Tensor]]:
    """Ways to a @ b that come to torch's mm."""
    out = a.new_empty(a.shape[0], b.shape[1])
    return {
        "mm": lambda: torch.mm(a, b),
        "operator": lambda: a @ b,
        "mm out": lambda: torch.mm(a, b, out=out),
        "linear": lambda: functional.linear(a, b.t()),
    }


def test_every_way_to_a_product(wins: Wins) -> None:
    for problem in wins.of_each_kernel()[:8]:
        a, b = exact(problem)
        for call in ways(a, b).values():
            counts = Counts()
            with hgemm_packs.enabled():
                c = call()
            counts.only_hits(1)
            reference.assert_exact(c, a, b)
            call()
            counts.only_hits(1)


def test_one_matrix_in_a_batch(wins: Wins) -> None:
    a, b = exact(wins.problems[0])
    counts = Counts()
    with hgemm_packs.enabled():
        c = torch.bmm(a.unsqueeze(0), b.unsqueeze(0))
    # A torch with Triton has put a product of its own there, which is left alone.
    line = torch._C._dispatch_dump("aten::bmm")
    if "hgemm_packs:" in line:
        counts.only_hits(1)
    reference.assert_exact(c[0], a, b)


def test_gradients(wins: Wins) -> None:
    """A backward runs in a thread of torch's, which takes the GIL for a kernel alone."""
    a, b = exact(wins.problems[0])
    a.requires_grad_(), b.requires_grad_()
    counts = Counts()
    with hgemm_packs.enabled():
        c = a @ b
        c.backward(torch.ones_like(c))
    assert counts.moved()["hits"] >= 1
    reference.assert_exact(c.detach(), a.detach(), b.detach())
    ones = torch.ones_like(c)
    for gradient, x, y in ((a.grad, ones, b.detach().t()), (b.grad, a.detach().t(), ones)):
        assert reference.errors(gradient, x, y).ok


def test_in_a_graph(wins: Wins) -> None:
    a, b = exact(wins.problems[0])
    with hgemm_packs.enabled():
        a @ b
        graph = torch.cuda.CUDAGraph()
        counts = Counts()
        with torch.cuda.graph(graph):
            c = a @ b
        counts.only_hits(1)
    c.zero_()
    graph.replay()
    reference.assert_exact(c, a, b)


def test_threads(wins: Wins) -> None:
    a, b = exact(wins.problems[0])
    expected = reference.product(a, b)
    wrong: list[torch.Tensor] = []

    def work() -> None:
        with hgemm_packs.enabled(), torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(50):
                c = a @ b
                if not torch.equal(c.double(), expected):
                    wrong.append(c)

    torch.cuda.synchronize()
    threads = [threading.Thread(target=work) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong


@pytest.mark.usefixtures("unpredicted")
def test_misses_are_torchs_to_the_bit() -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        a, b = (torch.randn(129, 72, device="cuda").to(dtype) for _ in range(2))
        bias = torch.randn(129, device="cuda").to(dtype)
        calls: list[Callable[[], torch.Tensor]] = [
            lambda a=a, b=b: a @ b.t(),
            lambda a=a, b=b, bias=bias: functional.linear(a, b, bias),
            lambda a=a, b=b: torch.bmm(torch.stack([a, b]), torch.stack([b, a]).mT),
        ]
        for call in calls:
            wanted = call()
            with hgemm_packs.enabled():
                assert torch.equal(call(), wanted)


def test_errors_are_torchs(wins: Wins) -> None:
    a = torch.ones(8, 8, device="cuda", dtype=torch.float16)
    with hgemm_packs.enabled():
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            a @ a[:3]
        with pytest.raises(RuntimeError, match="dtype"):
            a @ a.bfloat16()
        with pytest.raises(torch.OutOfMemoryError):
            torch.mm(a[:, :1].expand(8, 1).repeat(1 << 17, 1), a[:1].repeat(1, 1 << 17))


def test_compiled_code(wins: Wins) -> None:
    a, b = exact(wins.problems[0])
    compiled = torch.compile(lambda x, y: (x @ y) + 1)
    compiled(a, b)
    counts = Counts()
    with hgemm_packs.enabled():
        c = compiled(a, b)
    assert counts.moved()["hits"] == 1
    assert torch.equal(c, (reference.product(a, b) + 1).to(a.dtype))


def test_torchs_own_samples() -> None:
    tally = opinfo.Tally()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's tests warn of what is not installed
        opinfo.check("cuda", matmul, tally)
    assert not tally.failures, "\n".join(tally.failures[:5])
    assert tally.run > 600
    assert all(": " in reason for reason in tally.skipped), tally.skipped
