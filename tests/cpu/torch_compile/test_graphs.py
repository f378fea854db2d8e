"""What a compiled graph calls, and what it computes, on the stand-in driver."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch._inductor.utils import run_and_get_code

from hgemm_packs import launcher
from hgemm_packs.torch_compile import choice, lowering
from hgemm_packs.torch_compile.backend import compile_backend
from tests import reference
from tests.fake_driver import Started

Make = Callable[..., Any]


def hits() -> int:
    return launcher.counters()["hits"]


class Run(NamedTuple):
    """What a compiled function's second call returned, the generated code, and the call's hits. Of
    the first call torch checks what operators return (from 2.11 on), and no kernel runs."""

    out: torch.Tensor
    code: str
    hits: int


def run_twice(function: Make, *arguments: torch.Tensor) -> Run:
    _, code = run_and_get_code(function, *arguments)
    before = hits()
    out = function(*arguments)
    return Run(out, "".join(code), hits() - before)


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_matmul_is_called_with_planned_memory_and_no_break(compiler: Started, layout: str) -> None:
    compiler.serve("tma2_v1", layout)
    a, b = reference.cancelling(32, 64, 48, layout, torch.float16)
    with torch.no_grad():
        out, code, served = run_twice(torch.compile(compiler.matmul, fullgraph=True), a, b)
    reference.assert_exact(out, a, b)
    assert f"extern_kernels.{lowering.NAME}(" in code and "out=buf" in code
    assert served == 1 and torch._dynamo.utils.counters["stats"]["unique_graphs"] >= 1


def test_a_layer_with_leading_dimensions_is_served(compiler: Started) -> None:
    compiler.serve("tma2_v1", "nt")
    a, b = reference.cancelling(24, 64, 48, "nt", torch.float16)
    layer = torch.compile(lambda x, w: compiler.linear(x, w), fullgraph=True)
    with torch.no_grad():
        out, _, served = run_twice(layer, a.view(2, 3, 4, 48), b.t())
    reference.assert_exact(out.view(24, 64), a, b)
    assert out.shape == (2, 3, 4, 64) and served == 1


def test_products_that_no_kernel_serves_are_torch_s_own(compiler: Started) -> None:
    compiler.serve("tma2_v1", "nn")
    cases = [
        reference.cancelling(16, 32, 24, "nt", torch.float16),  # another layout
        reference.cancelling(16, 32, 24, "nn", torch.bfloat16),  # another type
        (torch.randn(16, 24), torch.randn(24, 32)),
        (torch.randn(24).half(), torch.randn(24, 32).half()),  # a vector
        (torch.randn(2, 16, 24).half(), torch.randn(2, 24, 32).half()),  # a batch
    ]
    for a, b in cases:
        with torch.no_grad():
            out, code, _ = run_twice(torch.compile(compiler.matmul, fullgraph=True), a, b)
        assert lowering.NAME not in code
        exact = a.double() @ b.double()
        assert torch.allclose(out.double(), exact, rtol=2e-2, atol=2e-2)
    assert hits() == 0


def test_gradients_are_products_that_kernels_serve(compiler: Started) -> None:
    """Forward nt, dX nn, dW tn: of an ordinary layer torch would run all three."""
    for layout in ("nn", "nt", "tn"):
        compiler.serve("tma2_v1", layout)
    generator = torch.Generator().manual_seed(0)
    # Whole numbers that float16 holds, sums too.
    x = torch.randint(-2, 3, (3, 8, 48), generator=generator).half().requires_grad_()
    w = torch.randint(-2, 3, (64, 48), generator=generator).half().requires_grad_()
    upstream = torch.randint(-2, 3, (3, 8, 64), generator=generator).half()
    layer = torch.compile(lambda x, w: compiler.linear(x, w), fullgraph=True)
    for _ in range(2):
        x.grad = w.grad = None
        layer(x, w).backward(upstream)
    assert x.grad is not None and w.grad is not None
    rows = upstream.reshape(24, 64).double()
    assert torch.equal(x.grad.double(), (rows @ w.detach().double()).view(3, 8, 48))
    assert torch.equal(w.grad.double(), rows.t() @ x.detach().reshape(24, 48).double())
    assert w.grad.is_contiguous() and hits() >= 3


def test_a_bias_is_fused_with_what_follows(
    compiler: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler.serve("tma2_v1", "nt")
    a, b = reference.cancelling(24, 64, 48, "nt", torch.float16)
    bias = torch.arange(64).half()
    weight = b.t()

    def followed(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(compiler.linear(x, weight, bias))

    def alone(x: torch.Tensor) -> torch.Tensor:
        return compiler.linear(x, weight, bias)

    exact = a.double() @ b.double() + bias.double()
    with torch.no_grad():
        out, code, served = run_twice(torch.compile(followed, fullgraph=True), a)
        assert torch.equal(out.double(), exact.clamp(min=0)) and lowering.NAME in code
        assert served == 1
        # The row of the stand-in saves 1 us, which is less than another launch.
        out, code, _ = run_twice(torch.compile(alone, fullgraph=True), a)
        assert torch.allclose(out.double(), exact) and lowering.NAME not in code
        torch._dynamo.reset()
        monkeypatch.setattr(choice, "LAUNCH_US", 0.5)
        with torch._inductor.utils.fresh_cache():
            out, code, served = run_twice(torch.compile(alone, fullgraph=True), a)
        assert torch.equal(out.double(), exact) and lowering.NAME in code and served == 1


def test_max_autotune_keeps_what_its_fusion_is_worth(
    compiler: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler.serve("tma2_v1", "nn")
    a, b = reference.cancelling(32, 64, 48, "nn", torch.float16)
    options = {"max_autotune_gemm": True, "max_autotune_gemm_backends": "ATEN"}

    def fused(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(compiler.matmul(x, b))

    with torch.no_grad():
        out, code, _ = run_twice(torch.compile(fused, options=options), a)
        assert torch.equal(out.double(), (a.double() @ b.double()).clamp(min=0))
        assert lowering.NAME not in code
        # Nothing follows: there is nothing to fuse.
        out, code, _ = run_twice(torch.compile(lambda x: compiler.matmul(x, b), options=options), a)
        reference.assert_exact(out, a, b)
        assert lowering.NAME in code


def test_what_fusion_saves_grows_with_the_output() -> None:
    assert choice.ServedProduct(2.5, 16, 64).outweighs_fusion()
    assert not choice.ServedProduct(1.5, 16, 64).outweighs_fusion()
    assert not choice.ServedProduct(2.5, 4096, 4096).outweighs_fusion()
    assert not choice.ServedProduct(None, None, 64).outweighs_fusion()


def test_autocast_casts_as_torch_does(compiler: Started) -> None:
    compiler.serve("tma2_v1", "nt", "bf16")
    a, b = (each.float() for each in reference.cancelling(16, 32, 24, "nt", torch.bfloat16))
    layer = torch.compile(lambda x, w: compiler.linear(x, w), fullgraph=True, backend="aot_eager")
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        out = layer(a, b.t())
        assert out.dtype == torch.nn.functional.linear(a, b.t()).dtype == torch.bfloat16
    reference.assert_exact(out, a.bfloat16(), b.bfloat16())


def test_vmap_inside_a_graph_is_torch_s(compiler: Started) -> None:
    compiler.serve("tma2_v1", "nn")
    a = torch.randint(-2, 3, (4, 16, 24)).half()
    b = torch.randint(-2, 3, (24, 32)).half()
    mapped = torch.compile(
        lambda x, y: torch.func.vmap(lambda one: compiler.matmul(one, y))(x),
        fullgraph=True,
        backend="aot_eager",
    )
    assert torch.equal(mapped(a, b).double(), a.double() @ b.double())


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_other_backends_run_the_operators(compiler: Started, backend: str) -> None:
    compiler.serve("tma2_v1", "nn")
    a, b = reference.cancelling(32, 64, 48, "nn", torch.float16)
    with torch.no_grad():
        out = torch.compile(compiler.matmul, fullgraph=True, backend=backend)(a, b)
    reference.assert_exact(out, a, b)
    a.requires_grad_()
    torch.compile(compiler.matmul, fullgraph=True, backend=backend)(a, b).sum().backward()
    assert a.grad is not None
    assert torch.allclose(a.grad.double(), b.double().sum(1).expand(32, 48))


@pytest.mark.parametrize("strict", [False, True])
def test_an_exported_program_runs_without_us(compiler: Started, strict: bool) -> None:
    compiler.serve("tma2_v1", "nt")
    a, b = reference.cancelling(16, 32, 24, "nt", torch.float16)

    class Layer(torch.nn.Module):
        def forward(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            return compiler.linear(x, w) @ compiler.matmul(w, x.t())

    program = torch.export.export(Layer(), (a, b.t()), strict=strict)
    called = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    assert called and all(name.startswith("aten.") for name in called)


def test_switched_off_nothing_of_ours_is_compiled(
    compiler: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler.serve("tma2_v1", "nn")
    monkeypatch.setattr(choice, "tables", lambda: "off")
    a, b = reference.cancelling(32, 64, 48, "nn", torch.float16)
    with torch.no_grad():
        out, code, _ = run_twice(torch.compile(compiler.matmul, fullgraph=True), a, b)
    assert lowering.NAME not in code and torch.equal(out, a @ b)


def test_a_cpp_wrapper_calls_torch_s_product(compiler: Started) -> None:
    """It cannot call Python, and Inductor's own way of saying so is an assertion."""
    compiler.serve("tma2_v1", "nn")
    a, b = reference.cancelling(32, 64, 48, "nn", torch.float16)
    with torch.no_grad():
        compiled = torch.compile(compiler.matmul, options={"cpp_wrapper": True})
        out, code, served = run_twice(compiled, a, b)
    reference.assert_exact(out, a, b)
    assert lowering.NAME not in code and served == 0


def test_operators_keep_torch_s_rules(compiler: Started) -> None:
    compiler.serve("tma2_v1", "nn")
    a, b = reference.normal(16, 32, 24, "nn", torch.float16)
    bias = torch.randn(32).half()
    ours = torch.ops.hgemm_packs
    for wants in (False, True):
        given = [each.clone().requires_grad_(wants) for each in (bias, a, b)]
        torch.library.opcheck(ours.mm.default, (*given[1:], "of a test"))
        torch.library.opcheck(ours.addmm.default, (*given, "of a test"))


def test_a_model_that_never_calls_us_is_served_by_the_backend(compiler: Started) -> None:
    compiler.serve("tma2_v1", "nt")
    a, b = reference.cancelling(24, 64, 48, "nt", torch.float16)
    model = torch.nn.Linear(48, 64, bias=False).half()
    model.weight.data.copy_(b.t())
    seen = []

    def remember(graph: torch.fx.Graph) -> None:
        seen.append(graph)

    with torch.no_grad():
        plain, code, _ = run_twice(torch.compile(model, fullgraph=True), a)
        assert lowering.NAME not in code
        torch._dynamo.reset()
        options = {"post_grad_custom_pre_pass": remember}
        served = torch.compile(
            model, fullgraph=True, backend=compile_backend(), mode="reduce-overhead"
        )
        out, code, count = run_twice(served, a)
        assert lowering.NAME in code and count == 1
        torch._dynamo.reset()
        chained = torch.compile(model, backend=compile_backend(), options=options)
        reference.assert_exact(chained(a), a, b)
    reference.assert_exact(out, a, b)
    reference.assert_exact(plain, a, b)
    assert len(seen) == 1


def test_the_backend_serves_gradients_and_biases(compiler: Started) -> None:
    for layout in ("nn", "nt", "tn"):
        compiler.serve("tma2_v1", layout)
    model = torch.nn.Linear(48, 64).half()
    x = torch.randint(-2, 3, (24, 48)).half().requires_grad_()
    with torch.no_grad():
        model.weight.copy_(torch.randint(-2, 3, (64, 48)))
        model.bias.copy_(torch.randint(-2, 3, (64,)))
    exact = torch.nn.functional.linear(x.double(), model.weight.double(), model.bias.double())
    served = torch.compile(lambda x: torch.relu(model(x)), backend=compile_backend())
    for _ in range(2):
        x.grad = model.weight.grad = model.bias.grad = None
        out = served(x)
        out.sum().backward()
    upstream = (exact > 0).double()
    assert torch.equal(out.double(), exact.clamp(min=0))
    assert x.grad is not None and model.weight.grad is not None and model.bias.grad is not None
    assert torch.equal(x.grad.double(), upstream @ model.weight.double())
    assert torch.equal(model.weight.grad.double(), upstream.t() @ x.double())
    assert torch.equal(model.bias.grad.double(), upstream.sum(0))
    assert hits() >= 3
