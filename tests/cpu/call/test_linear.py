"""linear(input, weight): a layer's product by the kernels of matmul, and torch's own linear, called
once and as it was called, in all that no kernel serves.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint

from hgemm_packs import launcher, nn, torch_state
from hgemm_packs.errors import FallbackError
from hgemm_packs.problem import Problem
from tests import reference
from tests.cpu.common.subclass import watching
from tests.fake_driver import Started

Tensors = tuple[torch.Tensor, torch.Tensor]
GUARDS = [contextlib.nullcontext, torch.no_grad, torch.inference_mode]


def operands(m: int = 32, n: int = 40, dtype: torch.dtype = torch.float16) -> Tensors:
    """x [M, K] and a weight [N, K]."""
    x, b = reference.cancelling(m, n, 32, "nt", dtype)
    return x, b.t()


@pytest.fixture
def ready(fake: Started) -> Started:
    fake.serve("ptr_v1", "nt")
    x, weight = operands()
    reference.assert_exact(fake.linear(x, weight), x, weight.t())
    assert launcher.counters()["hits"] == 1
    return fake


def layer(n: int = 40) -> torch.nn.Linear:
    made = torch.nn.Linear(32, n, bias=False, dtype=torch.float16)
    with torch.no_grad():
        made.weight.copy_(operands(n=n)[1])
    return made


@pytest.mark.parametrize("guard", GUARDS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("lead", [(), (1,), (2, 3), (3, 1, 2)], ids=str)
def test_products(fake: Started, lead: tuple[int, ...], dtype: torch.dtype, guard: Any) -> None:
    fake.serve("ptr_v1", "nt", "f16" if dtype == torch.float16 else "bf16")
    rows = torch.Size(lead).numel()
    x, weight = operands(rows * 8, dtype=dtype)
    with guard():
        c = fake.linear(x.view(*lead, 8, 32), weight)
        assert c.shape == (*lead, 8, 40) and c.is_contiguous() and c.dtype == dtype
        assert c.is_inference() == (guard is torch.inference_mode)
    reference.assert_exact(c.view(-1, 40), x, weight.t())
    assert launcher.counters() == {"hits": 1, "launches": 1, "fallbacks": 0}
    # The very problem of x @ weight.t(), answered by the same plan.
    reference.assert_exact(fake.matmul(x, weight.t()), x, weight.t())
    kind = "f16" if dtype == torch.float16 else "bf16"
    assert fake.asked == [Problem(rows * 8, 40, 32, "nt", kind)]


def test_weights_stored_by_columns_and_keywords(fake: Started) -> None:
    fake.serve("ptr_v1", "nn")
    x, weight = operands()
    by_column = weight.t().contiguous().t()
    for c in (
        fake.linear(x, by_column),
        fake.linear(x, weight=by_column),
        fake.linear(weight=by_column, input=x),
    ):
        reference.assert_exact(c, x, weight.t())
    assert launcher.counters()["hits"] == 3 and fake.asked[0].layout == "nn"


def outcome(call: Callable[[Any], Any], function: Any) -> Any:
    try:
        result = call(function)
    except Exception as error:
        return type(error), str(error)
    return result.dtype, result.shape, result.stride(), result.tolist()


def half(*size: int) -> torch.Tensor:
    return torch.arange(torch.Size(size).numel()).view(size).half() % 7 - 3


OTHERS: dict[str, Callable[[Any], Any]] = {
    "sizes": lambda f: f(half(8, 16), half(8, 24)),
    "sizes, 3-d": lambda f: f(half(2, 8, 16), half(8, 24)),
    "dtypes": lambda f: f(half(8, 16), half(8, 16).float()),
    "weight of rank 1": lambda f: f(half(8, 16), half(16)),
    "weight of rank 3": lambda f: f(half(8, 16), half(2, 8, 16)),
    "a vector": lambda f: f(half(16), half(8, 16)),
    "no rows": lambda f: f(half(0, 16), half(8, 16)),
    "no columns": lambda f: f(half(8, 0), half(8, 0)),
    "floats": lambda f: f(half(8, 16).float(), half(8, 16).float()),
    "transposed batches": lambda f: f(half(4, 2, 16).transpose(0, 1), half(8, 16)),
    "part of k": lambda f: f(half(8, 32)[:, :16], half(8, 32)[:, 16:]),
    "with a bias": lambda f: f(half(8, 16), half(8, 16), half(8)),
    "with a bias by name": lambda f: f(half(8, 16), half(8, 16), bias=half(8)),
    "a bias that does not fit": lambda f: f(half(8, 16), half(8, 16), half(3)),
    "a bias twice": lambda f: f(half(8, 16), half(8, 16), half(8), bias=half(8)),
    "four arguments": lambda f: f(half(8, 16), half(8, 16), half(8), half(8)),
    "no arguments": lambda f: f(),
    "one argument": lambda f: f(half(8, 16)),
    "out": lambda f: f(half(8, 16), half(8, 16), out=half(8, 8)),
    "other": lambda f: f(half(8, 16), other=half(8, 16)),
    "twice": lambda f: f(half(8, 16), half(8, 16), weight=half(8, 16)),
    "lists": lambda f: f([[1.0]], half(1, 1)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_the_same_as_torch(ready: Started, name: str) -> None:
    assert outcome(OTHERS[name], ready.linear) == outcome(OTHERS[name], functional.linear)
    assert launcher.counters()["hits"] == 1


def test_no_bias(ready: Started) -> None:
    x, weight = operands()
    for c in (ready.linear(x, weight, None), ready.linear(x, weight, bias=None)):
        reference.assert_exact(c, x, weight.t())
    assert launcher.counters()["hits"] == 3


@pytest.mark.parametrize("shape", [(32, 32), (2, 16, 32)], ids=str)
def test_gradients(ready: Started, shape: tuple[int, ...]) -> None:
    x, weight = (tensor.requires_grad_() for tensor in operands())
    c = ready.linear(x.view(shape), weight)
    wanted = functional.linear(x.view(shape), weight)
    assert c.grad_fn is not None and wanted.grad_fn is not None
    assert c.grad_fn.name() == wanted.grad_fn.name()
    c.sum().backward()
    ones = torch.ones(32, 40, dtype=torch.float16)
    reference.assert_product(x.grad, ones, weight.detach())
    reference.assert_product(weight.grad, ones.t(), x.detach())
    assert ready.fallbacks() == {"autograd": 1}


def test_a_checkpoint_of_a_layer(ready: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nn, "linear", ready.linear)
    linear, x = layer(), operands()[0].requires_grad_()

    def forward(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(nn.Linear.forward(linear, x))  # type: ignore[arg-type]

    checkpoint(forward, x, use_reentrant=False).sum().backward()
    assert linear.weight.grad is not None and x.grad is not None


def test_function_modes_see_linear(ready: Started) -> None:
    seen = []

    class Watching(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append((func, len(args), sorted(kwargs or {})))
            return func(*args, **kwargs or {})

    x, weight = operands()
    with Watching():
        c = ready.linear(x, weight=weight)
    assert seen == [(functional.linear, 1, ["weight"])]
    reference.assert_exact(c, x, weight.t())


def test_subclasses_see_linear(ready: Started) -> None:
    seen: list[Any] = []
    named = watching(seen)

    x, weight = operands()
    for pair in ((x.as_subclass(named), weight), (x, weight.as_subclass(named))):
        seen.clear()
        c = ready.linear(*pair)
        assert type(c) is named and seen == [functional.linear]
        reference.assert_exact(c.as_subclass(torch.Tensor), x, weight.t())


def test_other_states_of_torch(ready: Started) -> None:
    from torch._subclasses import FakeTensor, FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    x, weight = operands()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        c = ready.linear(x, weight)
        assert c.dtype == torch.bfloat16 and torch.equal(c, functional.linear(x, weight))
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        assert isinstance(ready.linear(x, weight), FakeTensor)
    assert isinstance(ready.linear(mode.from_tensor(x), mode.from_tensor(weight)), FakeTensor)
    graph = make_fx(lambda x: ready.linear(x, weight))(x)
    reference.assert_exact(graph(-x), -x, weight.t())
    batched = torch.vmap(ready.linear, in_dims=(0, None))(x.view(2, 16, 32), weight)
    reference.assert_exact(batched.view(32, 40), x, weight.t())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = torch.compile(lambda x: ready.linear(x + x, weight) + 1, backend="eager")
        reference.assert_exact(compiled(x) - 1, x + x, weight.t())
    assert launcher.counters()["hits"] >= 1


@pytest.mark.parametrize("kind", ["negated", "freed"])
def test_weights_that_are_no_plain_memory(ready: Started, kind: str) -> None:
    x, weight = operands()
    room = torch.zeros(2 * weight.numel(), dtype=torch.float16)
    odd = torch._neg_view(weight) if kind == "negated" else room[weight.numel() :].view(40, 32)
    if kind == "freed":
        room.untyped_storage().resize_(0)
    wanted = outcome(lambda f: f(x, odd), functional.linear)
    assert outcome(lambda f: f(x, odd), ready.linear) == wanted
    assert ready.fallbacks() == {"no_view": 1}


@pytest.mark.parametrize("guard", GUARDS)
def test_layers(ready: Started, guard: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nn, "linear", ready.linear)
    forward: Any = nn.Linear.forward
    x = operands()[0]
    with guard():
        c = forward(layer(), x)
        reference.assert_exact(c.detach(), x, operands()[1].t())
        biased = torch.nn.Linear(32, 40, dtype=torch.float16)
        assert torch.equal(forward(biased, x), biased(x))
    recorded = guard is contextlib.nullcontext
    assert ready.fallbacks() == ({"autograd": 2} if recorded else {"not_measured": 1})
    assert launcher.counters()["hits"] == (1 if recorded else 2)


def test_strict(ready: Started) -> None:
    launcher._extension().set_strict(True)
    with pytest.raises(FallbackError, match="not_measured"):
        ready.linear(operands()[0], operands()[1].t().contiguous().t())
    with pytest.raises(FallbackError, match="bias"):
        ready.linear(half(8, 16), half(8, 16), half(8))
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        ready.linear(half(8, 16), half(8, 24))


def test_without_the_extension(monkeypatch: pytest.MonkeyPatch, clean_process: None) -> None:
    x, weight = operands()
    before = torch_state.calls()
    reference.assert_exact(torch_state.linear(x, weight), x, weight.t())
    bias = half(40)
    assert torch.equal(torch_state.linear(x, weight, bias), functional.linear(x, weight, bias))
    assert torch_state.calls() == before + 2
