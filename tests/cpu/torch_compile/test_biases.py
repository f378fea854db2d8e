"""Layers with a bias in compiled graphs: a kernel that adds it, where a table has one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional

import hgemm_packs
from hgemm_packs import launcher
from hgemm_packs.errors import FallbackError
from hgemm_packs.torch_compile import choice, lowering
from hgemm_packs.torch_compile.backend import compile_backend
from tests import reference
from tests.cpu.torch_compile.test_graphs import hits, run_twice
from tests.fake_driver import Started

M, N, K = 24, 64, 48


def operands() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    a, b = reference.cancelling(M, N, K, "nt", torch.float16)
    return a, b.t(), (torch.arange(N) - 9).half()


def exact(a: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return reference.product(a, weight.t()) + bias.double()


def serve(compiler: Started, *epilogues: str) -> None:
    for epilogue in epilogues:
        plain = epilogue == "none"
        compiler.serve("tma2_v1" if plain else "tma2_v1_addend", "nt", epilogue=epilogue)


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("follows", [False, True])
def test_the_kernel_adds_it(compiler: Started, follows: bool, both: bool) -> None:
    """Also where there is one of the product alone, and whether anything follows or not."""
    serve(compiler, "bias", *(["none"] if both else []))
    a, weight, bias = operands()

    def layer(x: torch.Tensor) -> torch.Tensor:
        y = compiler.linear(x, weight, bias)
        return torch.relu(y) if follows else y

    with torch.no_grad():
        out, code, served = run_twice(torch.compile(layer, fullgraph=True), a.view(2, -1, K))
    wanted = exact(a, weight, bias).half()
    assert torch.equal(out.view(M, N), wanted.relu() if follows else wanted)
    assert f"extern_kernels.{lowering.ADDMM}(" in code and f"{lowering.NAME}(" not in code
    assert served == 1 and {each.epilogue for each in compiler.asked[-1:]} == {"bias"}


def test_max_autotune_keeps_what_its_fusion_is_worth(
    compiler: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(compiler, "bias")
    a, weight, bias = operands()
    options = {"max_autotune_gemm": True, "max_autotune_gemm_backends": "ATEN"}

    def followed(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(compiler.linear(x, weight, bias))

    def alone(x: torch.Tensor) -> torch.Tensor:
        return compiler.linear(x, weight, bias)

    with torch.no_grad():
        # The row of the stand-in saves 1 us, which is less than another launch.
        _, code, _ = run_twice(torch.compile(followed, options=options), a)
        assert lowering.ADDMM not in code
        out, code, served = run_twice(torch.compile(alone, options=options), a)
        assert lowering.ADDMM in code and served == 1
        assert torch.equal(out, exact(a, weight, bias).half())
        torch._dynamo.reset()
        monkeypatch.setattr(choice, "LAUNCH_US", 0.5)
        with torch._inductor.utils.fresh_cache():
            out, code, served = run_twice(torch.compile(followed, options=options), a)
        assert lowering.ADDMM in code and served == 1
        assert torch.equal(out, exact(a, weight, bias).half().relu())


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("epilogue", ["bias", "none"])
def test_other_backends_run_the_operator(compiler: Started, backend: str, epilogue: str) -> None:
    serve(compiler, epilogue)
    a, weight, bias = operands()
    layer = torch.compile(
        lambda x: compiler.linear(x, weight, bias), fullgraph=True, backend=backend
    )
    with torch.no_grad():
        out = layer(a)
    assert hits() == 1
    product = reference.product(a, weight.t())
    apart = product.half() + bias
    assert torch.equal(out, exact(a, weight, bias).half() if epilogue == "bias" else apart)


def test_gradients(compiler: Started) -> None:
    serve(compiler, "bias")
    for layout in ("nn", "tn"):
        compiler.serve("tma2_v1", layout)
    leaves = [torch.randint(-2, 3, size).half() for size in ((M, K), (N, K), (N,))]
    grads = []
    for wide in (False, True):
        x, weight, bias = (each.clone().to(torch.double if wide else each.dtype) for each in leaves)
        for each in (x, weight, bias):
            each.requires_grad_()
        function: Any = (
            functional.linear
            if wide
            else torch.compile(lambda x, w, b: compiler.linear(x, w, b), fullgraph=True)
        )
        for _ in range(1 if wide else 2):
            x.grad = weight.grad = bias.grad = None
            y = function(x, weight, bias)
            y.backward(torch.ones_like(y))
        grads.append([y.detach(), x.grad, weight.grad, bias.grad])
    for found, wanted in zip(*grads, strict=True):
        assert torch.equal(found.double(), wanted)
    assert hits() >= 3


def test_a_model_that_never_calls_us(compiler: Started) -> None:
    serve(compiler, "bias")
    a, weight, bias = operands()
    model = torch.nn.Linear(K, N).half()
    with torch.no_grad():
        model.weight.copy_(weight), model.bias.copy_(bias)
        served = torch.compile(model, fullgraph=True, backend=compile_backend())
        out, code, count = run_twice(served, a)
    assert torch.equal(out, exact(a, weight, bias).half())
    assert lowering.ADDMM in code and count == 1


@pytest.mark.parametrize("activation", [None, "relu", "silu"])
def test_linear_with_more_is_one_graph(compiler: Started, activation: str | None) -> None:
    """What follows the product and its bias is Inductor's there, which fuses it."""
    serve(compiler, "bias", "bias_relu", "bias_silu", "residual")
    a, weight, bias = operands()
    more = torch.ones(M, N).half()

    def layer(x: torch.Tensor) -> torch.Tensor:
        return hgemm_packs.linear(x, weight, bias, activation, more)

    with torch.no_grad():
        out, code, served = run_twice(torch.compile(layer, fullgraph=True), a)
    wanted = exact(a, weight, bias).half().double()
    if activation is not None:
        wanted = getattr(functional, activation)(wanted)
    assert torch.allclose(out.double(), wanted + 1, rtol=2e-3, atol=2e-3)
    assert lowering.ADDMM in code and served == 1


def test_what_addmm_takes(compiler: Started) -> None:
    """The function that generated code calls: torch.addmm's arguments, results and errors."""
    serve(compiler, "bias", "none")
    compiler.serve("tma2_v1_addend", "nn", epilogue="bias")
    addmm, wrong = compiler.extension.addmm, pytest.raises(RuntimeError)
    a, weight, bias = operands()
    b, out = weight.t(), torch.full((M, N), torch.nan).half()
    wanted = exact(a, weight, bias).half()
    assert torch.equal(addmm(bias, a, b), wanted)
    assert addmm(bias, a, b, out=out) is out and torch.equal(out, wanted)
    assert hits() == 2
    for given in ((bias[:1], a, b), (bias[None], a, b), (torch.ones(M, N).half(), a, b)):
        assert torch.equal(addmm(*given), torch.addmm(*given))
        assert torch.equal(addmm(*given, out=out), torch.addmm(*given))
    assert torch.equal(addmm(bias, a, b, beta=2), torch.addmm(bias, a, b, beta=2))
    assert hits() == 2
    for given in ((bias[:7], a, b), (bias, a.view(2, -1, K), b), (bias, a, b[:7]), (bias, a)):
        with pytest.raises((RuntimeError, TypeError)) as meant:
            torch.addmm(*given)
        with pytest.raises((RuntimeError, TypeError)) as found:
            addmm(*given)
        assert str(found.value) == str(meant.value)
    bias.requires_grad_()
    assert torch.equal(addmm(bias, a, b), wanted) and addmm(bias, a, b).requires_grad
    with wrong as found, torch.enable_grad():
        addmm(bias, a, b, out=out)
    assert "don't support automatic differentiation" in str(found.value)
    launcher._extension().set_strict(True)
    with pytest.raises(FallbackError, match="bias: what is added"):
        addmm(bias.detach()[:1], a, b)
