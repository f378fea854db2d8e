"""Calls without a kernel: torch's product below its dispatcher where torch would only multiply, the
call itself where it would do more. The result is torch's to the bit in any case.
"""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from tests import reference
from tests.fake_driver import Started

GUARDS = [contextlib.nullcontext, torch.no_grad, torch.inference_mode]
LEADS = [(), (1,), (3,), (2, 3), (1, 1)]


def aten_calls(function: Callable[..., object], *args: Any, **kwargs: Any) -> set[str]:
    """The operators that torch dispatches meanwhile, of those that a product may be."""
    with torch.profiler.profile() as seen:
        function(*args, **kwargs)
    names = {event.key for event in seen.key_averages()}
    return names & {"aten::linear", "aten::matmul", "aten::mm", "aten::addmm", "aten::t"}


def normal(*size: int) -> torch.Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(sum(size))).bfloat16()


@pytest.mark.parametrize("guard", GUARDS)
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("lead", LEADS, ids=str)
def test_layers(fake: Started, lead: tuple[int, ...], biased: bool, guard: Any) -> None:
    with guard():
        x, weight = normal(*lead, 8, 32), normal(24, 32)
        bias = normal(24) if biased else None
        c, wanted = fake.linear(x, weight, bias), functional.linear(x, weight, bias)
        assert torch.equal(c, wanted)
        assert c.stride() == wanted.stride() and c.is_inference() == wanted.is_inference()
        assert guard is torch.inference_mode or c._version == wanted._version == 0
    assert not c.requires_grad and c.is_leaf
    exact = x.double() @ weight.double().t()
    torch.testing.assert_close(
        c.double(), exact + bias.double() if biased else exact, rtol=2e-2, atol=5e-2
    )
    assert fake.fallbacks() == {"not_measured": 1}
    # With more leading dimensions some versions of torch add the bias after the product.
    fused = not biased or len(lead) < 2
    assert ("aten::linear" in aten_calls(fake.linear, x, weight, bias)) == (not fused)


@pytest.mark.parametrize("guard", GUARDS)
@pytest.mark.parametrize("lead", LEADS, ids=str)
def test_products(fake: Started, lead: tuple[int, ...], guard: Any) -> None:
    with guard():
        a, b = normal(*lead, 8, 32), normal(32, 24)
        by_columns = b.t().contiguous().t()
        for other in (b, by_columns):
            assert torch.equal(fake.matmul(a, other), torch.matmul(a, other))
        out = torch.empty(*lead, 8, 24, dtype=a.dtype)
        before = 0 if out.is_inference() else out._version
        assert fake.matmul(a, b, out=out) is out
        assert torch.equal(out, torch.matmul(a, b))
        assert out.is_inference() or out._version == before + 1
        assert fake.fallbacks() == {"not_measured": 3}
        assert aten_calls(fake.matmul, a, b) == (set() if lead else {"aten::mm"})
        assert not aten_calls(fake.matmul, a, b, out=out)


@pytest.mark.parametrize("rows", [(1, 32), (1, 1, 32), (8, 1)], ids=str)
def test_sides_of_one(fake: Started, rows: tuple[int, ...]) -> None:
    """A side of 1 has a stride that says nothing, which torch still reads."""
    x = normal(*rows)
    for n in (1, 24):
        weight = normal(n, rows[-1])
        assert torch.equal(fake.linear(x, weight), functional.linear(x, weight))
        assert torch.equal(fake.matmul(x, weight.t()), torch.matmul(x, weight.t()))


def test_a_gradient_is_recorded_by_torch(fake: Started) -> None:
    x, weight, bias = normal(8, 32), normal(24, 32), normal(24)
    for wanted in (x, weight, bias):
        wanted.requires_grad_()
        assert "aten::linear" in aten_calls(fake.linear, x, weight, bias)
        c = fake.linear(x, weight, bias)
        assert c.grad_fn is not None
        c.sum().backward()
        assert wanted.grad is not None
        wanted.requires_grad_(False)
        wanted.grad = None
    ones = torch.ones(8, 24, dtype=torch.bfloat16)
    weight.requires_grad_()
    fake.linear(x, weight, bias).sum().backward()
    reference.assert_product(weight.grad, ones.t(), x)


OTHERS: dict[str, Any] = {
    "of another type": lambda bias: bias.float(),
    "of another size": lambda bias: bias[:3],
    "a row": lambda bias: bias[None],
    "a number": lambda bias: bias[0],
    "negated": torch._neg_view,
    "a subclass": lambda bias: bias.as_subclass(type("Named", (torch.Tensor,), {})),
    "by two": lambda bias: torch.cat([bias, bias])[::2],
    "expanded": lambda bias: bias[:1].expand(24),
}


@pytest.mark.parametrize("lead", [(), (3,)], ids=str)
@pytest.mark.parametrize("kind", OTHERS)
def test_other_biases(fake: Started, kind: str, lead: tuple[int, ...]) -> None:
    """By two steps, in three dimensions: torch adds such a bias after the product (the random
    calls found it, one in 300,000)."""
    x, weight, bias = normal(*lead, 8, 32), normal(24, 32), OTHERS[kind](normal(24))
    found = []
    for function in (functional.linear, fake.linear):
        try:
            result = function(x, weight, bias)
            found.append((type(result), result._version, result.tolist()))
        except RuntimeError as error:
            found.append((RuntimeError, str(error)))
    assert found[0] == found[1]


def test_an_output_that_torch_refuses(fake: Started) -> None:
    a, b = normal(8, 32), normal(32, 24)
    with torch.inference_mode():
        out = torch.empty(8, 24, dtype=a.dtype)
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
        fake.matmul(a, b, out=out)


def test_memory_is_made_where_the_operands_are(fake: Started) -> None:
    """A layer on the second GPU had its output made on the first one too, torch's current device: a
    context and memory there for nothing. torch.empty is told the device."""
    x, weight, bias = normal(8, 32), normal(24, 32), normal(24)

    def is_told() -> bool:
        with torch.profiler.profile() as seen:
            assert torch.equal(fake.linear(x, weight, bias), functional.linear(x, weight, bias))
        return "aten::empty" in {event.key for event in seen.key_averages()}

    fake.set_device(1)
    assert is_told()
    fake.set_device(0)
    assert not is_told()


def test_a_finalizer_may_multiply_while_an_output_is_made(fake: Started) -> None:
    """The sizes of another output were let go of twice where a collection, which making a tuple may
    start, came to a finalizer with outputs of its own."""
    x, one = normal(1, 1, 1, 1, 2, 4, 32), normal(8, 32)
    weights = [normal(8 * n, 32) for n in range(1, 100)]

    class Multiplies:
        def __init__(self) -> None:
            self.me = self
            self.ran = ran

        def __del__(self) -> None:
            for weight in weights:
                fake.linear(x, weight)
                fake.linear(one, weight)
            self.ran.append(1)

    ran: list[int] = []
    for weight in weights:
        fake.linear(x, weight)
        fake.linear(one, weight)
    before = gc.get_threshold()
    gc.collect()  # no tuple is left over, so the next one is made
    gc.disable()
    Multiplies()
    try:
        gc.set_threshold(1)
        gc.enable()
        fake.linear(x, weights[0])
    finally:
        gc.set_threshold(*before)
        gc.enable()
    if sys.version_info < (3, 12):  # collections wait for the bytecode since
        assert ran
    mine = [(n, n, n) for n in range(5000)]  # where something was that is let go of
    for weight in [weights[0], *reversed(weights)]:  # those first whose sizes are kept
        assert torch.equal(fake.linear(x, weight), functional.linear(x, weight))
        assert torch.equal(fake.linear(one, weight), functional.linear(one, weight))
    assert mine[-1] == (4999, 4999, 4999)


def test_a_dispatch_mode_sees_matmul(fake: Started) -> None:
    """Of inference tensors outside inference mode torch dispatches matmul itself, not mm (the
    random calls found it, one in 300,000)."""
    with torch.inference_mode():
        a, b = normal(8, 32), normal(32, 24)
    seen: list[list[str]] = []

    class Watching(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen[-1].append(str(func))
            return func(*args, **kwargs or {})

    for matmul in (torch.matmul, fake.matmul):
        seen.append([])
        with Watching():
            matmul(a, b)
    assert seen[0] == seen[1]
