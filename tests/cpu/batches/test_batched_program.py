"""bmm and baddbmm of batches under enabled(): which are a kernel's, with torch's values, and which
are torch's to the bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

import hgemm_packs
from hgemm_packs import launcher
from hgemm_packs.torch_hooks import program
from tests.cpu.batches.made import DTYPES, WAYS, E, M, N, assert_batch, operands, whole
from tests.fake_driver import Started

Tensor = torch.Tensor
LAYOUTS = ("nn", "nt", "tn", "tt")


@pytest.fixture
def served(fake: Started) -> Started:
    for layout in LAYOUTS:
        for dtype in DTYPES:
            fake.serve("tma2_batched_v1", layout, dtype)
            fake.serve("tma3_batched_v1_addend", layout, dtype, symbol="sum")
    return fake


@pytest.fixture(autouse=True)
def ended() -> Iterator[None]:
    yield
    hgemm_packs.restore_torch()
    assert program._blocks == 0


def hits() -> int:
    return launcher.counters()["hits"]


def more(dtype: torch.dtype = torch.float16) -> Tensor:
    return whole(E, M, N, dtype=dtype, seed=7)


def empty() -> Tensor:
    return torch.full((E, M, N), torch.nan).half()


Call = Callable[[Tensor, Tensor], Tensor]
SERVED: dict[str, tuple[Call, bool]] = {
    "bmm": (torch.bmm, False),
    "bmm out": (lambda a, b: torch.bmm(a, b, out=empty()), False),
    "matmul": (torch.matmul, False),
    "an operator": (lambda a, b: a @ b, False),
    "four dimensions": (lambda a, b: (a[None] @ b[None])[0], False),
    "einsum": (lambda a, b: torch.einsum("emk,ekn->emn", a, b), False),
    "our own": (lambda a, b: launcher.matmul(a, b), False),
    "baddbmm": (lambda a, b: torch.baddbmm(more(), a, b), True),
    "a method": (lambda a, b: more().baddbmm(a, b), True),
    "baddbmm out": (lambda a, b: torch.baddbmm(more(), a, b, out=empty()), True),
    "times 0": (lambda a, b: torch.baddbmm(empty(), a, b, beta=0), False),
}


@pytest.mark.parametrize("what", SERVED)
def test_a_kernel_runs_it(served: Started, what: str) -> None:
    call, adds = SERVED[what]
    a, b = operands()
    with hgemm_packs.enabled(), torch.no_grad():
        found = call(a, b)
    assert_batch(found, a, b, more() if adds else None)
    assert hits() == 1


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("way", WAYS)
def test_strided_batches(served: Started, way: str, dtype: str) -> None:
    a, b = operands(way, WAYS[len(way) % len(WAYS)], DTYPES[dtype])
    with hgemm_packs.enabled():
        assert_batch(torch.bmm(a, b), a, b)
        added = more(DTYPES[dtype])
        assert_batch(torch.baddbmm(added, a, b), a, b, added)
    assert hits() == 2


def test_gradients_are_batches_too(served: Started) -> None:
    a, b = (each.requires_grad_() for each in operands())
    with hgemm_packs.enabled():
        torch.bmm(a, b).backward(torch.ones(E, M, N).half())
    ones = torch.ones(E, M, N, dtype=torch.float64)
    assert a.grad is not None and b.grad is not None
    assert torch.equal(a.grad, (ones @ b.detach().double().mT).half())
    assert torch.equal(b.grad, (a.detach().double().mT @ ones).half())
    assert hits() == 3


def added_to(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """A kernel may have stored a tile of C before it reads another of the addend."""
    return torch.baddbmm(x, a, b, out=x)


TORCHS: dict[str, Call] = {
    "in place": lambda a, b: more().baddbmm_(a, b),
    "into the sum": lambda a, b: added_to(more(), a, b),
    "beta": lambda a, b: torch.baddbmm(more(), a, b, beta=2),
    "alpha": lambda a, b: torch.baddbmm(more(), a, b, alpha=0.5),
    "a row": lambda a, b: torch.baddbmm(more()[0, 0], a, b),
    "a matrix": lambda a, b: torch.baddbmm(more()[0], a, b),
    "a column": lambda a, b: torch.baddbmm(more()[..., :1], a, b),
    "a sum stored by column": lambda a, b: torch.baddbmm(more().mT.contiguous().mT, a, b),
    "an output with gaps": lambda a, b: torch.bmm(a, b, out=a.new_empty(E, M, N + 8)[..., :N]),
    "K of no unit": lambda a, b: torch.bmm(a[..., :33], b[:, :33]),
    "float32": lambda a, b: torch.bmm(a.float(), b.float()),
}


@pytest.mark.parametrize("what", TORCHS)
def test_torch_runs_it(served: Started, what: str) -> None:
    a, b = operands()
    wanted = TORCHS[what](a, b)
    with hgemm_packs.enabled():
        found = TORCHS[what](a, b)
    assert hits() == 0 and torch.equal(found, wanted)


ERRORS: dict[str, Call] = {
    "another batch": lambda a, b: torch.bmm(a, b[:2]),
    "one for all": lambda a, b: torch.bmm(a[:1], b),
    "another K": lambda a, b: torch.bmm(a, b[:, :8]),
    "another sum": lambda a, b: torch.baddbmm(more()[:2], a, b),
    "another type": lambda a, b: torch.bmm(a, b.bfloat16()),
    "a matrix": lambda a, b: torch.bmm(a, b[0]),
}


@pytest.mark.parametrize("what", ERRORS)
def test_errors_are_torchs(served: Started, what: str) -> None:
    a, b = operands()
    said = []
    for on in (False, True):
        with hgemm_packs.enabled() if on else hgemm_packs.disabled():
            with pytest.raises(RuntimeError) as error:
                ERRORS[what](a, b)
            said.append(str(error.value))
    assert said[0] == said[1] and hits() == 0
