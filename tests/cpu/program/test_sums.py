"""Sums with a product under enabled(): which are a kernel's, with torch's values, and which are
torch's to the bit."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import pytest
import torch
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

import hgemm_packs
from hgemm_packs import launcher
from tests import reference
from tests.cpu.common.scripts import run
from tests.cpu.program.common import SIDE, Hits, assert_torchs_to_the_bit, one, operands
from tests.fake_driver import Started

Tensor = torch.Tensor


def bias() -> Tensor:
    return (torch.arange(SIDE) - 9).half()


def matrix() -> Tensor:
    return (torch.arange(SIDE * SIDE) % 37 - 18).half().view(SIDE, SIDE)


def layer(a: Tensor, b: Tensor) -> torch.nn.Linear:
    made = torch.nn.Linear(SIDE, SIDE, dtype=a.dtype)
    made.weight.data, made.bias.data = b.t(), bias()
    return made


def inference(function: Callable[[], Tensor]) -> Tensor:
    with torch.inference_mode():
        return function().clone()


class Watch(TorchDispatchMode):
    """Hands on what it sees, which then comes with its arguments on a stack."""

    def __torch_dispatch__(
        self, func: Callable[..., Tensor], types: object, args: object = (), kwargs: object = None
    ) -> Tensor:
        return func(*args, **(kwargs or {}))  # type: ignore[misc]


def watched(function: Callable[[], Tensor]) -> Tensor:
    with Watch():
        return function()


def new() -> Tensor:
    return torch.full((SIDE, SIDE), torch.nan).half()


addmm, baddbmm = torch.addmm, torch.baddbmm
aten = torch.ops.aten
#: Sums that kernels run: the call, and what is computed of the product.
SERVED: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "bias": (lambda a, b: addmm(bias(), a, b), lambda x: x + bias()),
    "method": (lambda a, b: bias().addmm(a, b), lambda x: x + bias()),
    "layer": (lambda a, b: layer(a, b)(a).detach(), lambda x: x + bias()),
    "linear": (lambda a, b: functional.linear(a, b.t(), bias()), lambda x: x + bias()),
    "folded": (
        lambda a, b: functional.linear(a.view(2, -1, SIDE), b.t(), bias()).view(SIDE, SIDE),
        lambda x: x + bias(),
    ),
    "numbers": (lambda a, b: addmm(bias(), a, b, beta=1.0, alpha=1.0), lambda x: x + bias()),
    "bias out": (lambda a, b: addmm(bias(), a, b, out=new()), lambda x: x + bias()),
    "matrix": (lambda a, b: addmm(matrix(), a, b), lambda x: x + matrix()),
    "matrix out": (lambda a, b: addmm(matrix(), a, b, out=new()), lambda x: x + matrix()),
    "times 0": (lambda a, b: addmm(new(), a, b, beta=0), lambda x: x),
    "a row times 0": (lambda a, b: addmm(new()[0], a, b, beta=0.0), lambda x: x),
    "stored by column, times 0": (lambda a, b: addmm(new().t(), a, b, beta=0), lambda x: x),
    "batch": (lambda a, b: baddbmm(one(matrix()), one(a), one(b))[0], lambda x: x + matrix()),
    "batch and bias": (lambda a, b: baddbmm(bias(), one(a), one(b))[0], lambda x: x + bias()),
    "batch out": (
        lambda a, b: baddbmm(one(matrix()), one(a), one(b), out=one(new()))[0],
        lambda x: x + matrix(),
    ),
    "batch times 0": (lambda a, b: baddbmm(one(new()), one(a), one(b), beta=0)[0], lambda x: x),
    "relu": (lambda a, b: torch._addmm_activation(bias(), a, b), lambda x: (x + bias()).relu()),
    "gelu": (
        lambda a, b: torch._addmm_activation(bias(), a, b, use_gelu=True),
        lambda x: functional.gelu(x + bias()),  # by erf, as torch has it on a CPU
    ),
    "relu out": (
        lambda a, b: torch._addmm_activation(bias(), a, b, out=new()),
        lambda x: (x + bias()).relu(),
    ),
    "inference": (lambda a, b: inference(lambda: addmm(bias(), a, b)), lambda x: x + bias()),
    "stack": (lambda a, b: watched(lambda: addmm(bias(), a, b)), lambda x: x + bias()),
    "stack and numbers": (
        lambda a, b: watched(lambda: aten.addmm.default(matrix(), a, b, beta=1.0, alpha=1)),
        lambda x: x + matrix(),
    ),
    "stack out": (
        lambda a, b: watched(lambda: addmm(matrix(), a, b, out=new())),
        lambda x: x + matrix(),
    ),
    "stack and gelu": (
        lambda a, b: inference(lambda: aten._addmm_activation.default(bias(), a, b, use_gelu=True)),
        lambda x: functional.gelu(x + bias()),
    ),
    "stack, batch": (
        lambda a, b: watched(lambda: aten.baddbmm.default(bias(), one(a), one(b)))[0],
        lambda x: x + bias(),
    ),
}


@pytest.mark.parametrize("way", SERVED)
def test_kernels_run_it(served: Started, way: str) -> None:
    call, wanted = SERVED[way]
    a, b = operands()
    hits = Hits()
    with hgemm_packs.enabled():
        found = call(a, b)
    assert hits() == 1
    assert torch.equal(found, wanted(reference.product(a, b)).half())
    assert found.is_contiguous() and found.shape == (SIDE, SIDE)
    call(a, b)
    assert hits() == 1


#: Sums that are torch's, but are of operands that kernels take.
MISSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "alpha": lambda a, b: addmm(bias(), a, b, alpha=2),
    "beta": lambda a, b: addmm(bias(), a, b, beta=0.5),
    "beta 0 and alpha": lambda a, b: addmm(bias(), a, b, beta=0, alpha=-1),
    "a true alpha": lambda a, b: addmm(bias(), a, b, alpha=True),
    "a number": lambda a, b: addmm(bias()[3], a, b),
    "one row": lambda a, b: addmm(bias()[None], a, b),
    "one column": lambda a, b: addmm(bias()[:, None], a, b),
    "one value": lambda a, b: addmm(bias()[:1], a, b),
    "one value times 0": lambda a, b: addmm(bias()[:1], a, b, beta=0),
    "stored by column": lambda a, b: addmm(matrix().t(), a, b),
    "rows apart": lambda a, b: addmm(torch.cat([matrix(), matrix()], 1)[:, :SIDE], a, b),
    "unaligned": lambda a, b: addmm(torch.cat([bias(), bias()])[4 : SIDE + 4], a, b),
    "steps": lambda a, b: addmm(torch.stack([bias(), bias()], 1)[:, 1], a, b),
    "in place": lambda a, b: matrix().addmm_(a, b),
    "onto itself": lambda a, b: (lambda c: addmm(c, a, b, out=c))(matrix()),
    "onto the bias": lambda a, b: (lambda c: addmm(c[3], a, b, out=c))(matrix()),
    "strided out": lambda a, b: addmm(bias(), a, b, out=torch.zeros(SIDE, 64).half()[:, ::2]),
    "activation of a matrix": lambda a, b: torch._addmm_activation(matrix(), a, b),
    "activation times 0": lambda a, b: torch._addmm_activation(bias(), a, b, beta=0),
    "a matrix in a batch": lambda a, b: baddbmm(matrix(), one(a), one(b)),
    "a batch of two": lambda a, b: baddbmm(bias(), torch.stack([a, b]), torch.stack([b, a])),
    "float32": lambda a, b: addmm(bias().float(), a.float(), b.float(), beta=2),
    "complex": lambda a, b: addmm(
        bias().to(torch.complex64), a.to(torch.complex64), b.to(torch.complex64), alpha=2j
    ),
    "stack and alpha": lambda a, b: watched(lambda: addmm(bias(), a, b, alpha=2)),
    "stack and complex": lambda a, b: inference(
        lambda: aten.addmm.default(
            bias().to(torch.complex64), a.to(torch.complex64), b.to(torch.complex64), alpha=2j
        )
    ),
}


@pytest.mark.parametrize("miss", MISSES)
def test_everything_else_is_torchs_to_the_bit(served: Started, miss: str) -> None:
    assert_torchs_to_the_bit(MISSES[miss])


#: Sums that torch refuses, of an addend that is not read, too.
ERRORS: dict[str, Callable[[Tensor], object]] = {
    "shape": lambda a: addmm(bias()[:7], a, a),
    "shape times 0": lambda a: addmm(bias()[:7], a, a, beta=0),
    "dtype": lambda a: addmm(bias().float(), a, a),
    "dtype times 0": lambda a: addmm(matrix().float(), a, a, beta=0),
    "shapes": lambda a: addmm(bias(), a, a[:7]),
    "out": lambda a: addmm(bias(), a, a, out=a.float()),
    "stack": lambda a: watched(lambda: addmm(bias()[:7], a, a)),
    "batch": lambda a: baddbmm(matrix()[:7], one(a), one(a)),
}


@pytest.mark.parametrize("error", ERRORS)
def test_errors_are_torchs(served: Started, error: str) -> None:
    a, _ = operands()
    with pytest.raises(RuntimeError) as wanted:
        ERRORS[error](a)
    with hgemm_packs.enabled(), pytest.raises(RuntimeError) as found:
        ERRORS[error](a)
    assert str(found.value) == str(wanted.value)


@pytest.mark.parametrize("way", ["bias", "bias out", "stack", "stack out", "stack and alpha"])
def test_no_tensor_is_kept(served: Started, way: str) -> None:
    """What C++ hands over it owns itself, but for what lies on a stack."""
    call = SERVED[way][0] if way in SERVED else MISSES[way]
    a, b = operands()
    hgemm_packs.enable()
    found = call(a, b)
    gone = [weakref.ref(x) for x in (a, b, found)]
    storages = [weakref.ref(x.untyped_storage()) for x in (a, b, found)]
    del a, b, found
    gc.collect()
    assert [x() for x in gone] == [None] * 3 and [x() for x in storages] == [None] * 3


def test_gradients(served: Started) -> None:
    """Autograd is above: the sum is a kernel's, and so are the products of its gradients."""
    a, b = operands()
    leaves = [bias().requires_grad_(), a.requires_grad_(), b.requires_grad_()]
    hits = Hits()
    with hgemm_packs.enabled():
        y = torch.addmm(*leaves)
        assert hits() == 1
        y.backward(torch.ones_like(y))
    assert hits() == 3
    ones = torch.ones(SIDE, SIDE, dtype=torch.float16)
    assert torch.equal(leaves[0].grad, torch.full((SIDE,), SIDE).half())
    reference.assert_exact(leaves[1].grad, ones, b.detach().t())
    reference.assert_exact(leaves[2].grad, a.detach().t(), ones)


def test_out_is_returned_and_its_version_raised(served: Started) -> None:
    a, b = operands()
    out = new()
    before = out._version
    with hgemm_packs.enabled():
        assert torch.addmm(bias(), a, b, out=out) is out
    assert out._version == before + 1


def test_what_it_adds_is_read_at_each_call(served: Started) -> None:
    a, b = operands()
    added = matrix()
    with hgemm_packs.enabled():
        for factor in (1, -2):
            more = added * factor
            exact = reference.product(a, b) + more.double()
            assert torch.equal(torch.addmm(more, a, b), exact.half())
    assert [each.epilogue for each in served.asked] == ["residual"]


def test_counters_name_what_torch_runs(served: Started) -> None:
    a, b = operands()
    with hgemm_packs.enabled():
        before = served.fallbacks().get("bias", 0)
        torch.addmm(bias(), a, b, alpha=2)
        torch.addmm(bias()[:1], a, b)
        assert served.fallbacks()["bias"] == before + 2
        torch.addmm(bias().float(), a.float(), b.float())
        assert served.fallbacks()["bias"] == before + 2
        off = served.fallbacks().get("off", 0)
        with hgemm_packs.disabled():
            exact = reference.product(a, b) + bias().double()
            assert torch.equal(torch.addmm(bias(), a, b), exact.half())
        assert served.fallbacks()["off"] == off + 1
    assert launcher.counters()["hits"] == 0


def test_half_precision_sums_are_torchs_where_a_user_asks_for_them(served: Started) -> None:
    a, b = operands()
    hits = Hits()
    with hgemm_packs.enabled():
        torch.backends.cuda.matmul.allow_fp16_accumulation = True
        try:
            torch.addmm(bias(), a, b)
        finally:
            torch.backends.cuda.matmul.allow_fp16_accumulation = False
        assert hits() == 0
        torch.addmm(bias(), a, b)
    assert hits() == 1


def test_a_kernel_that_fails_leaves_the_sum_to_torch(served: Started) -> None:
    a, b = operands()
    served.control.fail_launches = 1
    exact = (reference.product(a, b) + bias().double()).half()
    with hgemm_packs.enabled():
        assert torch.equal(torch.addmm(bias(), a, b), exact)
        assert torch.equal(torch.addmm(bias(), a, b, out=new()), exact)
    assert served.fallbacks()["launch_failed"]


def test_another_librarys_sum_is_left_alone() -> None:
    said = run(
        "import torch, warnings\n"
        "from tests import fake_driver\n"
        "import hgemm_packs\n"
        "from hgemm_packs import dispatch\n"
        "library = torch.library.Library('aten', 'IMPL')\n"
        "warnings.simplefilter('ignore')\n"
        "library.impl('addmm', lambda c, a, b, beta=1, alpha=1: 5 * torch.ones(8, 8), 'CPU')\n"
        "dispatch.start('libc.so.6', 1)\n"
        "hgemm_packs.enable()\n"
        "a = torch.ones(8, 8)\n"
        "print(torch.addmm(a, a, a)[0, 0].item())\n"
        "print(torch.baddbmm(a, a[None], a[None])[0, 0, 0].item())"
    )
    assert said.startswith("5.0\n9.0\n")
    assert "aten::addmm on CPU is not torch's own, and is left alone" in said
