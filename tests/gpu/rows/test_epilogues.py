"""What a kernel computes beyond a product, on the GPU, by every way to it. No row of the committed
table need have an epilogue: kernels are compiled here, and every problem that they admit is theirs.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

import hgemm_packs
from hgemm_packs import launcher, nn, select
from hgemm_packs.generator.compile import candidate, compiler
from hgemm_packs.generator.families.computed import compute_also
from hgemm_packs.pack.manifest import KernelEntry
from hgemm_packs.problem import Problem, Reason
from hgemm_packs.select import Selection
from tests import reference
from tests.fake_driver import FakePack
from tests.generator.kernels import WGMMA
from tests.gpu.conftest import DTYPES, Counts

pytestmark = pytest.mark.gpu

Tensor = torch.Tensor
M, N, K = 128, 256, 192
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "silu": functional.silu,
}
#: Of the largest value: one rounding, and the kernel's own exponential.
CLOSE = {"f16": 2.0**-10, "bf16": 2.0**-7}


class Compiled:
    """A pack of kernels that are compiled when a test says so."""

    def __init__(self) -> None:
        self.pack = FakePack()
        self.kernels: dict[tuple[str, str, str], KernelEntry] = {}

    def serve(self, *epilogues: str, dtype: str = "f16", layout: str = "nt") -> None:
        for epilogue in epilogues:
            genome = compute_also({**WGMMA, "dtype": dtype, "layout": layout}, epilogue)
            built = compiler.build_one("sm90_wgmma", genome)
            entry = candidate.entry(built.entry_fields, built.cubin)
            self.pack.images[entry.id] = built.cubin
            self.kernels[layout, dtype, epilogue] = entry

    def resolve(
        self,
        problem: Problem,
        device_index: int,
        *,
        invariant: bool = False,
        unmeasured: bool = False,
    ) -> Selection:
        assert not invariant
        kernel = self.kernels.get((problem.layout, problem.dtype, problem.epilogue))
        unfit = select._find_unfit(problem) or (kernel.admits(problem) if kernel else None)
        if kernel is None or unfit is not None:
            return Selection(None, None, None, (unfit or Reason("not_measured", "not compiled"),))
        return Selection(self.pack, kernel, None, ())  # type: ignore[arg-type]


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Compiled:
    made = Compiled()
    monkeypatch.setattr(select, "resolve", made.resolve)
    return made


def whole(dtype: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """x [M, K], weight [N, K], bias [N] and residual [M, N] whose sums are exact."""
    x, b = reference.cancelling(M, N, K, "nt", DTYPES[dtype], device="cuda")
    bias = (torch.arange(N, device="cuda") % 23 - 9).to(x.dtype)
    more = (torch.arange(M * N, device="cuda") % 29 - 14).to(x.dtype).view(M, N)
    return x, b.t(), bias, more


def normal(dtype: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator("cuda").manual_seed(7)
    x, weight, bias, more = (
        torch.randn(size, generator=generator, device="cuda").to(DTYPES[dtype])
        for size in ((M, K), (N, K), (N,), (M, N))
    )
    return x / 8, weight, bias, more


def product(x: Tensor, weight: Tensor) -> Tensor:
    return x.double() @ weight.double().t()


def assert_close(y: Tensor, exact: Tensor, dtype: str) -> None:
    error = (y.double() - exact).abs().max().item()
    assert error <= CLOSE[dtype] * exact.abs().max().item()


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_bias_and_a_residual_are_exact(compiled: Compiled, dtype: str) -> None:
    compiled.serve("bias", "bias_relu", "residual", dtype=dtype)
    x, weight, bias, more = whole(dtype)
    counts = Counts()
    exact = product(x, weight)
    with torch.inference_mode():
        y = hgemm_packs.linear(x, weight, bias)
        relu = hgemm_packs.linear(x.view(2, -1, K), weight, bias, "relu").view(M, N)
        added = hgemm_packs.linear(x, weight, residual=more)
    counts.only_hits(3)
    assert torch.equal(y, (exact + bias.double()).to(y.dtype))
    assert torch.equal(relu, (exact + bias.double()).relu().to(y.dtype))
    assert torch.equal(added, (exact + more.double()).to(y.dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh", "silu"])
def test_activations(compiled: Compiled, activation: str, dtype: str) -> None:
    """No less exact than torch's composition, measured against float64."""
    compiled.serve(f"bias_{activation}", dtype=dtype)
    x, weight, bias, _ = normal(dtype)
    counts = Counts()
    with torch.inference_mode():
        y = hgemm_packs.linear(x, weight, bias, activation)
    counts.only_hits(1)
    exact = ACTIVATIONS[activation](product(x, weight) + bias.double())
    assert_close(y, exact, dtype)
    composed = ACTIVATIONS[activation](functional.linear(x, weight, bias))
    mine, theirs = ((each.double() - exact).square().mean().item() for each in (y, composed))
    assert mine <= theirs


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_gate(compiled: Compiled, dtype: str) -> None:
    compiled.serve("gated_silu", dtype=dtype)
    x, weight, _, more = normal(dtype)
    half = more[:, : N // 2]
    counts = Counts()
    with torch.inference_mode():
        y = hgemm_packs.linear(x, weight, activation="gated_silu")
        added = hgemm_packs.linear(x, weight, activation="gated_silu", residual=half)
    counts.only_hits(2)
    gate, up = product(x, weight).chunk(2, -1)
    assert y.shape == (M, N // 2)
    assert_close(y, functional.silu(gate) * up, dtype)
    assert torch.equal(added, y + half)


def test_a_captured_graph_reads_what_is_there_at_replay(compiled: Compiled) -> None:
    compiled.serve("bias", "residual")
    x, weight, bias, more = whole("f16")
    layer = nn.Linear(K, N, device="cuda", dtype=x.dtype)
    layer.weight.data, layer.bias.data = weight, bias
    assert hgemm_packs.warmup(layer, [M]) == 1
    with torch.inference_mode():
        hgemm_packs.linear(x, weight, residual=more)  # a capture loads nothing
        graph = torch.cuda.CUDAGraph()
        counts = Counts()
        with torch.cuda.graph(graph):
            y = layer(x)
            added = hgemm_packs.linear(x, weight, residual=more)
        counts.only_hits(2)
        bias.mul_(2), more.mul_(-1)
        graph.replay()
    torch.cuda.synchronize()
    exact = product(x, weight)
    assert torch.equal(y, (exact + bias.double()).half())
    assert torch.equal(added, (exact + more.double()).half())


def test_sums_of_a_program(compiled: Compiled) -> None:
    for layout in ("nt", "nn", "tn"):
        compiled.serve("none", layout=layout)
    compiled.serve("bias", "bias_relu", "bias_gelu_tanh", "residual")
    x, weight, bias, more = whole("f16")
    b, out = weight.t(), torch.full((M, N), torch.nan, device="cuda").half()
    exact = product(x, weight)
    biased, summed = exact + bias.double(), exact + more.double()
    ways: dict[str, tuple[Callable[[], Tensor], Tensor]] = {
        "linear": (lambda: functional.linear(x, weight, bias), biased),
        "folded": (lambda: functional.linear(x.view(2, -1, K), weight, bias).view(M, N), biased),
        "addmm": (lambda: torch.addmm(bias, x, b), biased),
        "addmm out": (lambda: torch.addmm(bias, x, b, out=out), biased),
        "matrix": (lambda: torch.addmm(more, x, b), summed),
        "times 0": (lambda: torch.addmm(out, x, b, beta=0), exact),
        "batch": (lambda: torch.baddbmm(more[None], x[None], b[None])[0], summed),
        "relu": (lambda: torch._addmm_activation(bias, x, b), biased.relu()),
    }
    for name, (call, wanted) in ways.items():
        with torch.no_grad(), hgemm_packs.enabled():
            counts = Counts()
            found = call()
            counts.only_hits(1)
        assert torch.equal(found, wanted.half()), name
        call()
        counts.only_hits(1)
    with torch.no_grad(), hgemm_packs.enabled():
        gelu = torch._addmm_activation(bias, x, b, use_gelu=True)
    # By tanh on both sides.
    assert_close(gelu, functional.gelu(biased, approximate="tanh"), "f16")
    assert_close(torch._addmm_activation(bias, x, b, use_gelu=True), gelu.double(), "f16")


def test_other_sums_are_torchs_to_the_bit(compiled: Compiled) -> None:
    compiled.serve("bias", "residual", "none")
    x, weight, bias, more = normal("f16")
    b = weight.t()
    calls: list[Callable[[], Tensor]] = [
        lambda: torch.addmm(bias, x, b, alpha=2),
        lambda: torch.addmm(bias, x, b, beta=0.5),
        lambda: torch.addmm(bias[:1], x, b),
        lambda: torch.addmm(more.t().contiguous().t(), x, b),
        lambda: more.clone().addmm_(x, b),
        lambda: torch.addmm(bias.float(), x.float(), b.float()),
        lambda: torch.addmm(bias[4:20], x, b[:, 4:20]),
    ]
    for call in calls:
        wanted = call()
        before = hgemm_packs.counters()["hits"]
        with hgemm_packs.enabled():
            assert torch.equal(call(), wanted)
        assert hgemm_packs.counters()["hits"] == before


def test_a_layer_trains_under_enabled(compiled: Compiled) -> None:
    compiled.serve("bias", "none")
    for layout in ("nn", "tn"):
        compiled.serve("none", layout=layout)
    x, weight, bias, slope = whole("f16")
    layer = torch.nn.Linear(K, N, device="cuda", dtype=x.dtype)
    layer.weight.data, layer.bias.data = weight, bias
    x = x.clone().requires_grad_()
    with hgemm_packs.enabled():
        counts = Counts()
        y = layer(x)
        y.backward(slope)
        counts.only_hits(3)
    exact = product(x.detach(), weight) + bias.double()
    assert torch.equal(y.detach(), exact.half())
    assert x.grad is not None and layer.weight.grad is not None
    reference.assert_product(x.grad, slope, weight)
    reference.assert_product(layer.weight.grad, slope.t(), x.detach())


def test_a_compiled_layer(compiled: Compiled, monkeypatch: pytest.MonkeyPatch) -> None:
    """The row that the choice weighs is one of the stand-in's: 1 us saved."""
    from torch._inductor.utils import run_and_get_code

    from hgemm_packs.torch_compile import choice, lowering

    compiled.serve("bias")
    monkeypatch.setattr(choice, "tables", lambda: "of a test of epilogues")
    monkeypatch.setattr(
        choice, "_find", lambda p, *_: choice.ServedProduct(1.0, p.m, p.n, p.epilogue == "bias")
    )
    x, weight, bias, _ = whole("f16")
    torch._dynamo.reset()
    layer = torch.compile(lambda x: launcher.linear(x, weight, bias).relu(), fullgraph=True)
    with torch.no_grad(), torch._inductor.utils.fresh_cache():
        _, code = run_and_get_code(layer, x)
        counts = Counts()
        y = layer(x)
        counts.only_hits(1)
    assert lowering.ADDMM in "".join(code)
    assert torch.equal(y, (product(x, weight) + bias.double()).half().relu())
