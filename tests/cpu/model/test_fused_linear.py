"""hgemm_packs.linear by one kernel: values of a float64 reference rounded once, torch's composition
in all that no kernel computes whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

import hgemm_packs
from hgemm_packs import launcher
from hgemm_packs.errors import FallbackError
from hgemm_packs.pack.manifest import WITH_ADDEND
from tests import reference
from tests.fake_driver import Started

DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16}
M, N, K = 32, 48, 64
ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": torch.relu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "silu": functional.silu,
}


@pytest.fixture
def ours(fake: Started) -> Started:
    return fake


def operands(dtype: torch.dtype = torch.float16) -> tuple[torch.Tensor, ...]:
    """x [M, K], weight [N, K], bias [N] and residual [M, N]; the product is of about 1."""
    generator = torch.Generator().manual_seed(1)
    x, weight, bias, more = (
        torch.randn(size, generator=generator).to(dtype) for size in ((M, K), (N, K), (N,), (M, N))
    )
    return x / 8, weight, bias, more


def product(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x.double() @ weight.double().t()


def gated(x: torch.Tensor) -> torch.Tensor:
    return functional.silu(x[..., : N // 2]) * x[..., N // 2 :]


def assert_rounded_once(y: torch.Tensor, exact: torch.Tensor) -> None:
    """In every bit."""
    assert torch.equal(y, exact.to(y.dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("param_layout", WITH_ADDEND.values())
def test_bias_and_activation(ours: Started, param_layout: str, activation: str, dtype: str) -> None:
    ours.serve(param_layout, "nt", dtype, epilogue=f"bias_{activation}")
    x, weight, bias, _ = operands(DTYPES[dtype])
    exact = ACTIVATIONS[activation](product(x, weight) + bias.double())
    y = hgemm_packs.linear(x.view(2, -1, K), weight, bias, activation)
    assert y.shape == (2, M // 2, N)
    assert_rounded_once(y.view(M, N), exact)
    composed = ACTIVATIONS[activation](functional.linear(x, weight, bias))
    assert not torch.equal(y.view(M, N), composed) or activation == "relu"
    assert launcher.counters() == {"hits": 1, "launches": 1, "fallbacks": 0}
    assert [each.epilogue for each in ours.asked] == [f"bias_{activation}"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("param_layout", WITH_ADDEND.values())
def test_a_residual(ours: Started, param_layout: str, dtype: str) -> None:
    ours.serve(param_layout, "nt", dtype, epilogue="residual")
    x, weight, _, more = operands(DTYPES[dtype])
    kept = more.clone()
    for lead in ((M,), (2, M // 2), (2, 2, M // 4)):
        y = hgemm_packs.linear(x.view(*lead, K), weight, residual=more.view(*lead, N))
        assert y.shape == (*lead, N)
        assert_rounded_once(y.view(M, N), product(x, weight) + more.double())
    assert torch.equal(more, kept)
    assert launcher.counters() == {"hits": 3, "launches": 3, "fallbacks": 0}
    assert not torch.equal(y.view(M, N), functional.linear(x, weight) + more)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("param_layout", WITH_ADDEND)
def test_a_gate(ours: Started, param_layout: str, dtype: str) -> None:
    ours.serve(param_layout, "nt", dtype, epilogue="gated_silu")
    x, weight, bias, more = operands(DTYPES[dtype])
    exact = gated(product(x, weight))
    y = hgemm_packs.linear(x.view(4, -1, K), weight, activation="gated_silu")
    assert y.shape == (4, M // 4, N // 2)
    assert_rounded_once(y.view(M, N // 2), exact)
    half = more[:, : N // 2]
    assert torch.equal(
        hgemm_packs.linear(x, weight, activation="gated_silu", residual=half),
        exact.to(y.dtype) + half,
    )
    assert launcher.counters() == {"hits": 2, "launches": 2, "fallbacks": 0}
    ours.asked.clear()
    composed = gated(functional.linear(x, weight, bias))
    assert torch.equal(hgemm_packs.linear(x, weight, bias, "gated_silu"), composed)
    assert [each.epilogue for each in ours.asked] == ["bias"]


def test_what_follows_a_kernel_of_the_longest_start(ours: Started) -> None:
    """A residual behind a bias and an activation is torch's, on what the kernel has rounded."""
    ours.serve("ptr_v1_addend", "nt", epilogue="bias_silu")
    x, weight, bias, more = operands()
    y = hgemm_packs.linear(x, weight, bias, "silu", more)
    rounded = functional.silu(product(x, weight) + bias.double()).half()
    assert torch.equal(y, rounded + more)
    assert launcher.counters() == {"hits": 1, "launches": 1, "fallbacks": 0}


def test_a_miss_is_remembered_and_the_product_has_its_kernel(ours: Started) -> None:
    ours.serve("tma2_v1_addend", "nt")
    x, weight, bias, _ = operands()
    rounded = (product(x, weight) + bias.double()).half()
    for _ in range(3):
        assert torch.equal(hgemm_packs.linear(x, weight, bias, "relu"), rounded.relu())
    assert [each.epilogue for each in ours.asked] == ["bias_relu", "bias"]
    assert launcher.counters() == {"hits": 3, "launches": 3, "fallbacks": 0}


@pytest.mark.parametrize("activation", [None, "silu", "gated_silu"])
@pytest.mark.parametrize("wants", ["x", "weight", "addend"])
def test_gradients_are_those_of_torchs_composition(
    ours: Started, wants: str, activation: str | None
) -> None:
    """A kernel of the whole records nothing: none may run where a gradient is wanted."""
    for epilogue in ("residual", "bias_silu", "bias"):
        ours.serve("ptr_v1_addend", "nt", epilogue=epilogue)
    ours.serve("ptr_v1", "nt", epilogue="gated_silu")
    outcomes = []
    for ours_runs in (True, False):
        x, weight, bias, more = operands()
        addend = bias if activation else more
        leaf = {"x": x, "weight": weight, "addend": addend}[wants].requires_grad_()
        given = (bias, activation, None) if activation else (None, None, more)
        if ours_runs:
            y = hgemm_packs.linear(x, weight, *given)
        elif activation is None:
            y = functional.linear(x, weight) + more
        else:
            act = gated if activation == "gated_silu" else functional.silu
            y = act(functional.linear(x, weight, bias))
        y.float().square().sum().backward()
        outcomes.append((y.detach(), leaf.grad))
    assert torch.equal(outcomes[0][0], outcomes[1][0])
    assert outcomes[0][1] is not None and torch.equal(outcomes[0][1], outcomes[1][1])
    assert launcher.counters()["hits"] == 0
    with torch.no_grad():
        hgemm_packs.linear(x, weight, *given)
    assert launcher.counters()["hits"] == 1


class Odd(torch.Tensor):
    pass


#: Residuals that no kernel adds.
UNFIT: dict[str, Callable[[torch.Tensor], Any]] = {
    "a vector": lambda more: more[0],
    "one row": lambda more: more[:1],
    "a number": lambda more: 3.0,
    "float32": lambda more: more.float(),
    "stored by column": lambda more: more.t().contiguous().t(),
    "rows apart": lambda more: torch.cat([more, more], 1)[:, :N],
    "unaligned": lambda more: torch.cat([more.view(-1), more.view(-1)])[4 : M * N + 4].view(M, N),
    "more dimensions": lambda more: more.expand(2, M, N),
    "a subclass": lambda more: more.as_subclass(Odd),
    "negative": lambda more: torch._neg_view(more),
}


@pytest.mark.parametrize("name", UNFIT)
def test_a_residual_that_no_kernel_adds(ours: Started, name: str) -> None:
    ours.serve("ptr_v1_addend", "nt", epilogue="residual")
    x, weight, _, more = operands()
    odd = UNFIT[name](more)
    y, wanted = hgemm_packs.linear(x, weight, residual=odd), functional.linear(x, weight) + odd
    assert torch.equal(y, wanted) and (type(y), y.dtype) == (type(wanted), wanted.dtype)
    assert launcher.counters()["hits"] == 0


def test_the_residual_of_a_folded_input_has_its_dimensions(ours: Started) -> None:
    """[2, M/2, K] and a residual [M, N] do not add up, though their memory would."""
    ours.serve("ptr_v1_addend", "nt", epilogue="residual")
    x, weight, _, more = operands()
    with pytest.raises(RuntimeError, match="must match the size"):
        hgemm_packs.linear(x.view(2, -1, K), weight, residual=more)
    assert launcher.counters()["hits"] == 0


def test_modes_see_torchs_functions(ours: Started) -> None:
    ours.serve("ptr_v1_addend", "nt", epilogue="bias_relu")
    x, weight, bias, _ = operands()
    seen: list[str] = []

    class Watch(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(func.__name__)
            return func(*args, **kwargs or {})

    with Watch():
        y = hgemm_packs.linear(x, weight, bias, "relu")
    assert torch.equal(y, functional.linear(x, weight, bias).relu())
    assert {"linear", "relu"} <= set(seen) and launcher.counters()["hits"] == 0
    with torch.autocast("cpu", torch.bfloat16):
        assert hgemm_packs.linear(x, weight, bias, "relu").dtype == torch.bfloat16
    assert launcher.counters()["hits"] == 0


def test_a_kernel_that_fails_leaves_the_call_to_the_composition(ours: Started) -> None:
    ours.serve("ptr_v1_addend", "nt", epilogue="residual")
    ours.serve("ptr_v1", "nt")
    x, weight, _, more = operands()
    ours.control.fail_launches = 1
    for _ in range(2):
        y = hgemm_packs.linear(x, weight, residual=more)
        assert torch.equal(y, product(x, weight).half() + more)
    assert launcher.counters()["hits"] == 2 and ours.fallbacks() == {}


def test_strict_and_off(ours: Started) -> None:
    ours.serve("ptr_v1_addend", "nt", epilogue="bias_relu")
    x, weight, bias, more = operands()
    launcher._extension().set_strict(True)
    hgemm_packs.linear(x, weight, bias, "relu")
    with pytest.raises(FallbackError, match="32x48x64 nt f16 on device 0"):
        hgemm_packs.linear(x, weight, residual=more)
    launcher._extension().set_strict(False)
    with hgemm_packs.disabled():
        y = hgemm_packs.linear(x, weight, bias, "relu")
    assert torch.equal(y, functional.linear(x, weight, bias).relu())
    assert launcher.counters()["hits"] == 1 and ours.fallbacks()["off"] == 1


def test_what_is_refused(ours: Started) -> None:
    x, weight, *_ = operands()
    with pytest.raises(
        ValueError, match=r"gated_silu halves the columns of a product with \[47, 64\]"
    ):
        hgemm_packs.linear(x, weight[:47], activation="gated_silu")
    with pytest.raises(ValueError, match="no epilogue 'relu'"):
        ours.extension.fused_linear(x, weight, None, "relu")
    with pytest.raises(TypeError, match=r"fused_linear\(input, weight, addend, epilogue\)"):
        ours.extension.fused_linear(x, weight, None)
    reference.assert_exact(hgemm_packs.linear(x * 0, weight), x * 0, weight.t())
