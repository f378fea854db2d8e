"""The batch-invariant mode on the stand-in driver: who runs a call, what raises, and that answers
of one mode are never those of the other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.nn import functional

import hgemm_packs
from hgemm_packs import launcher, select, settings, torch_state
from hgemm_packs.errors import InvariantError
from hgemm_packs.nn import Linear
from hgemm_packs.nn.functional import linear
from hgemm_packs.problem import Problem
from tests import fake_driver, reference
from tests.cpu.common.strictly import strict
from tests.fake_driver import Started

mode = hgemm_packs.options
Call = Callable[[Started, torch.Tensor, torch.Tensor], Any]


@pytest.fixture(autouse=True)
def outside() -> Iterator[None]:
    yield
    hgemm_packs.resume()
    assert settings._invariant_blocks == 0


@pytest.fixture
def served(fake: Started) -> Started:
    """Kernels for nn and nt, float16; in the mode others, of another block size."""
    for layout in ("nn", "nt", "tn"):
        fake.serve("tma3_v1", layout)
    return fake


@pytest.fixture
def two_kinds(served: Started, monkeypatch: pytest.MonkeyPatch) -> Started:
    """In the mode a kernel with 256 threads, outside one with 128."""
    cubin = fake_driver.image("invariant", "tma2_v1")
    other = fake_driver.entry("tma2_v1", cubin=cubin, symbol="invariant", block=256)
    served.pack.images[other.id] = cubin

    def resolve(
        problem: Problem, device: int, *, invariant: bool, unmeasured: bool = False
    ) -> select.Selection:
        found = served.resolve(problem, device, invariant=invariant)
        return found._replace(kernel=other, dependent=None) if invariant else found

    monkeypatch.setattr(select, "resolve", resolve)
    return served


def operands(m: int = 32, layout: str = "nn") -> tuple[torch.Tensor, torch.Tensor]:
    return reference.cancelling(m, 40, 64, layout, torch.float16, seed=m)


def test_a_product_is_asked_for_in_the_mode(served: Started) -> None:
    a, b = operands()
    with mode(batch_invariant=True):
        reference.assert_exact(served.matmul(a, b), a, b)
        reference.assert_exact(served.matmul(a.view(2, 16, 64), b).view(32, 40), a, b)
        out = torch.empty(32, 40).half()
        assert served.matmul(a, b, out=out) is out
        reference.assert_exact(out, a, b)
        for m in (1, 7, 33):
            reference.assert_exact(served.matmul(operands(m)[0], b), operands(m)[0], b)
    assert served.modes == [True] * 4
    assert launcher.counters() == {"hits": 6, "launches": 6, "fallbacks": 0}


def test_answers_are_of_one_mode(two_kinds: Started) -> None:
    """The table of C knows a problem of the mode and the same problem outside as two."""
    a, b = operands()
    for _ in range(3):
        reference.assert_exact(two_kinds.matmul(a, b), a, b)
        assert two_kinds.control.block == 128
        with mode(batch_invariant=True):
            reference.assert_exact(two_kinds.matmul(a, b), a, b)
            assert two_kinds.control.block == 256
    assert two_kinds.modes == [False, True]
    two_kinds.control.fail_launches = 1
    with mode(batch_invariant=True):
        for reason in ("launch_failed", "launch_failed"):  # and is not tried again
            with pytest.raises(InvariantError, match=reason):
                two_kinds.matmul(a, b)
    two_kinds.control.fail_launches = 0
    reference.assert_exact(two_kinds.matmul(a, b), a, b)
    assert two_kinds.control.block == 128


def test_a_bias_is_added_by_torch_for_every_m(
    served: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table has kernels with a bias for some M alone, and they round once: the mode uses none."""
    served.serve("tma3_v1_addend", "nt", epilogue="bias")
    monkeypatch.setattr("hgemm_packs.nn.linear", served.linear)
    bias = (torch.arange(40) / 7).half()
    for m in (1, 32):
        a, b = reference.normal(m, 40, 64, "nt", torch.float16)
        with torch.no_grad(), mode(batch_invariant=True):
            product = served.linear(a, b.t())
            reference.assert_product(product, a, b)
            assert torch.equal(served.linear(a, b.t(), bias), product + bias)
            c = served.linear(a.view(1, m, 64), b.t(), bias=bias)
            assert torch.equal(c, (product + bias).view(1, m, 40))
            layer = Linear(64, 40, device="meta")
            layer.weight, layer.bias = torch.nn.Parameter(b.t()), torch.nn.Parameter(bias)
            assert torch.equal(layer(a), product + bias)
            assert torch.equal(
                linear(a, layer.weight, bias, "relu"),
                functional.relu(product + bias),
            )
    assert {problem.epilogue for problem in served.asked} == {"none"} and all(served.modes)


def _out(rows: int, columns: int) -> torch.Tensor:
    return torch.empty(rows, columns).half()


#: Calls that torch would run: why, and the call.
RAISING: dict[str, tuple[str, Call]] = {
    "float32": ("dtype", lambda f, a, b: f.matmul(a.float(), b.float())),
    "two types": ("mismatch", lambda f, a, b: f.matmul(a, b.bfloat16())),
    "names of NumPy": ("mismatch", lambda f, a, b: f.matmul(x1=a, x2=b)),
    "sizes": ("mismatch", lambda f, a, b: f.matmul(a, b[:32])),
    "not served": ("not_measured", lambda f, a, b: f.matmul(a.bfloat16(), b.bfloat16())),
    "vector": ("shape", lambda f, a, b: f.matmul(a, b[:, 0])),
    "batch": ("shape", lambda f, a, b: f.matmul(a[None], b[None])),
    "no rows": ("shape", lambda f, a, b: f.matmul(a[:0], b)),
    "stepped": ("layout", lambda f, a, b: f.matmul(a[:, ::2], b[::2])),
    "gap": ("strided", lambda f, a, b: f.matmul(a[:, :48], b[:48])),
    "odd K": ("unaligned", lambda f, a, b: f.matmul(a[:, :60].clone(), b[:60])),
    "odd N": ("unaligned", lambda f, a, b: f.matmul(a, b[:, :36].clone())),
    "address": ("unaligned", lambda f, a, b: f.matmul(a.view(-1)[4:][: 16 * 64].view(16, 64), b)),
    "resized out": ("mismatch", lambda f, a, b: f.matmul(a, b, out=_out(16, 40))),
    "strided out": ("strided", lambda f, a, b: f.matmul(a, b, out=_out(32, 80)[:, :40])),
    "bias": ("bias", lambda f, a, b: f.linear(a, b.t().contiguous(), a[0, 1:41])),
    "bias of one": ("bias", lambda f, a, b: f.linear(a, b.t().contiguous(), a[0, :1])),
    "mode": ("mode", lambda f, a, b: _autocast(f, a, b)),
    "out and a gradient": (
        "autograd",
        lambda f, a, b: f.matmul(a, b.clone().requires_grad_(), out=_out(32, 40)),
    ),
    "functorch": (
        "no_view|mode|tensor_type",
        lambda f, a, b: torch.vmap(f.matmul)(a[None], b[None]),
    ),
}  # fmt: skip


def _autocast(fake: Started, a: torch.Tensor, b: torch.Tensor) -> Any:
    with torch.autocast("cpu", torch.float16):
        return fake.matmul(a, b)


@pytest.mark.parametrize("strictly", [False, True])
@pytest.mark.parametrize("name", RAISING)
def test_what_torch_would_run_raises(
    served: Started, monkeypatch: pytest.MonkeyPatch, name: str, strictly: bool
) -> None:
    reason, call = RAISING[name]
    a, b = operands()
    if strictly:
        strict(monkeypatch)
    with mode(batch_invariant=True):
        with pytest.raises(InvariantError, match=rf"options\(batch_invariant=True\): .*({reason})"):
            call(served, a, b)
        reference.assert_exact(served.matmul(a, b), a, b)
    (counted,) = served.fallbacks()
    assert counted in reason.split("|") and launcher.counters()["hits"] == 1


def test_the_error_says_what_and_why(served: Started) -> None:
    a, b = operands()
    with mode(batch_invariant=True):
        with pytest.raises(InvariantError) as raised:
            served.matmul(a.bfloat16(), b.bfloat16())
        assert str(raised.value) == (
            "options(batch_invariant=True): no batch-invariant kernel runs 32x40x64 nn bf16 on "
            "device 0: not_measured (no  not_measured: not served)"
        )
        with pytest.raises(InvariantError) as raised:
            served.matmul(a.float(), b.float())
        assert str(raised.value) == (
            "options(batch_invariant=True): no batch-invariant kernel runs this call: dtype: the "
            "operands are neither float16 nor bfloat16"
        )
    assert isinstance(raised.value, RuntimeError)


def test_a_capture_must_find_what_it_needs(served: Started) -> None:
    a, b = operands()
    with mode(batch_invariant=True):
        served.capture(1)
        with pytest.raises(InvariantError, match=r"cold_capture: .*before it"):
            served.matmul(a, b)
        served.capture(0)
        served.matmul(a, b)
        served.capture(2)
        reference.assert_exact(served.matmul(a, b), a, b)
        served.capture(0)


def test_a_warmup_in_the_mode(served: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a layer that might train, at an M that the gradient of its weight has no kernel for."""
    monkeypatch.setattr(torch_state, "LEAST_RECORDED", 0)
    layer = Linear(64, 40, bias=False, dtype=torch.float16)
    with mode(batch_invariant=True):
        assert hgemm_packs.warmup(layer, [3]) == 1
    assert served.modes == [True]


def test_switched_off_raises_too(served: Started) -> None:
    a, b = operands()
    off = pytest.raises(InvariantError, match="off: kernels are switched off")
    with mode(batch_invariant=True), hgemm_packs.disabled(), off:
        served.matmul(a, b)
    assert launcher.counters() == {"hits": 0, "launches": 0, "fallbacks": 1, "fallback off": 1}


def holds(fake: Started) -> bool:
    """Whether the mode does."""
    del fake.modes[:]
    launcher.reset_table()
    a, b = operands()
    reference.assert_exact(fake.matmul(a, b), a, b)
    (found,) = fake.modes
    return found


def test_blocks_nest_and_end_by_exceptions(served: Started) -> None:
    with mode(batch_invariant=True):
        with pytest.raises(KeyError), mode(batch_invariant=True):
            raise KeyError
        with mode(batch_invariant=False):
            assert holds(served)
        assert holds(served)
    assert not holds(served)
    with mode(batch_invariant=False):
        assert not holds(served)
    with pytest.raises(TypeError):
        mode(True)  # type: ignore[misc]


def test_a_block_is_of_all_threads_until_the_last_ends(served: Started) -> None:
    begun, end = threading.Event(), threading.Event()

    def work() -> None:
        with mode(batch_invariant=True):
            begun.set()
            end.wait()

    other = threading.Thread(target=work)
    with mode(batch_invariant=True):
        other.start()
        begun.wait()
    assert holds(served)
    end.set()
    other.join()
    assert not holds(served)


@pytest.mark.parametrize("lead", [(32,), (2, 16)])
def test_gradients_are_products_of_the_mode(served: Started, lead: tuple[int, ...]) -> None:
    """However small: outside, torch records such a product, and its gradients are torch's."""
    served.serve("tma3_v1", "tn")
    a, b = reference.cancelling(32, 40, 64, "nt", torch.float16)
    x, w = a.view(*lead, 64).clone().requires_grad_(), b.t().clone().requires_grad_()
    bias = torch.zeros(40).half().requires_grad_()
    with mode(batch_invariant=True):
        y = served.linear(x, w, bias)
        reference.assert_exact(y.detach().view(32, 40), a, b)
        y.sum().backward()
    ones = torch.ones(32, 40, dtype=torch.float64)
    assert x.grad is not None and w.grad is not None and bias.grad is not None
    assert torch.equal(x.grad.view(32, 64), (ones @ b.t().double()).half())
    assert torch.equal(w.grad, (ones.t() @ a.double()).half())
    assert bias.grad.tolist() == [32] * 40
    assert launcher.counters() == {"hits": 3, "launches": 3, "fallbacks": 0} and all(served.modes)


def test_a_gradient_without_a_kernel_raises(served: Started) -> None:
    """The sum of a weight's gradient goes over M, which is then a K that no kernel takes."""
    x, w = torch.ones(3, 64).half(), torch.ones(40, 64).half().requires_grad_()
    with mode(batch_invariant=True):
        y = served.linear(x, w)
        with pytest.raises(InvariantError, match="runs 40x64x3 tn f16 on"):
            y.sum().backward()


def test_addmm_multiplies_and_adds(served: Started) -> None:
    """What compiled code calls: the mode's product, and torch's sum, also into an output."""
    a, b = reference.normal(32, 40, 64, "nn", torch.float16)
    bias, out = (torch.arange(40) / 7).half(), torch.empty(32, 40).half()
    with torch.no_grad(), mode(batch_invariant=True):
        product = served.matmul(a, b)
        assert torch.equal(launcher._C.addmm(bias, a, b), product + bias)
        assert launcher._C.addmm(bias, a, b, out=out) is out
        assert torch.equal(out, product + bias)
    assert launcher.counters() == {"hits": 3, "launches": 3, "fallbacks": 0}


def test_what_kernels_fuse_is_torchs_in_the_mode(served: Started) -> None:
    """As with a bias: some M have such kernels, and they round once."""
    served.serve("tma3_v1_addend", "nt", epilogue="bias_relu")
    a, b = reference.normal(32, 40, 64, "nt", torch.float16)
    bias = (torch.arange(40) / 7).half()
    with torch.no_grad(), mode(batch_invariant=True):
        assert launcher.fused_linear(a, b.t(), bias, "bias_relu") is None
    assert launcher.fused_linear(a, b.t(), bias, "bias_relu") is not None


def test_explain_says_what_raises(served: Started, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = operands()
    with mode(batch_invariant=True):
        hgemm_packs.explain(a.float(), b.float())
        said = capsys.readouterr().out
        assert said.startswith("raises    InvariantError in the batch-invariant mode (dtype)\n")
    hgemm_packs.explain(a.float(), b.float())
    assert capsys.readouterr().out.startswith("runs on   torch (fallback: dtype)\n")


def test_without_the_extension_every_call_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    with mode(batch_invariant=True), pytest.raises(InvariantError, match="no_extension"):
        torch_state.matmul(*operands())
