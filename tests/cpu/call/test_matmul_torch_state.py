"""Where torch's matmul does more than multiply, it must be torch's matmul: gradients, autocast,
modes, tracing, transforms, subclasses. Each test would see a wrong value, gradient or record if a
kernel ran instead; a kernel stands ready for every one of these problems.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._device import DeviceContext
from torch.utils._python_dispatch import TorchDispatchMode

from hgemm_packs import launcher, report, torch_state
from tests import fake_driver, reference
from tests.fake_driver import Started


@pytest.fixture(params=["shortcut", "probes"])
def ready(fake: Started, request: pytest.FixtureRequest) -> Iterator[Started]:
    """A kernel for every layout; asked with and without the shortcut through dispatch keys."""
    if request.param == "probes":
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch_state, "quiet_threads", lambda remember: None)
            again = fake_driver.start(patch, fake.library)
            patch.setattr("hgemm_packs.select.resolve", again.resolve)
            yield serve(again)
    else:
        yield serve(fake)


def serve(fake: Started) -> Started:
    for layout in ("nn", "nt", "tn", "tt"):
        fake.serve("ptr_v1", layout)
    # Every test below starts from a table that holds the problem: only the state differs.
    a, b = operands()
    reference.assert_exact(fake.matmul(a, b), a, b)
    reference.assert_exact(fake.matmul(a, b, out=torch.empty(32, 32).half()), a, b)
    assert launcher.counters()["hits"] == 2
    return fake


def operands() -> tuple[torch.Tensor, torch.Tensor]:
    return reference.cancelling(32, 32, 32, "nn", torch.float16)


def test_gradients(ready: Started) -> None:
    a, b = reference.normal(32, 32, 32, "nn", torch.float16)
    for wants_a, wants_b in ((True, False), (False, True), (True, True)):
        x, y = a.clone().requires_grad_(wants_a), b.clone().requires_grad_(wants_b)
        ready.matmul(x, y).sum().backward()
        ones = torch.ones(32, 32, dtype=torch.float16)
        if wants_a:
            reference.assert_product(x.grad, ones, b.t())
        if wants_b:
            reference.assert_product(y.grad, a.t(), ones)
    assert ready.fallbacks() == {"autograd": 3}


def test_explain_knows_torchs_state(
    ready: Started, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # explain named the kernel of an nn.Linear whose gradients kept every call with torch.
    monkeypatch.setattr(report, "explain_problem", lambda problem, index: f"problem   {problem}")
    a, b = operands()
    weight = torch.nn.Parameter(b)
    assert (torch_state.state(a, b), torch_state.state(a, weight)) == (None, "autograd")
    with torch.no_grad():
        assert torch_state.state(a, weight) is None
    with TorchFunctionMode():
        assert torch_state.state(a, b) == "mode"
    report.explain(a, weight)
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "runs on   torch (fallback: autograd)" and "inference_mode()" in said[1]
    assert said[2] == "without that:" and said[3] == f"problem   {launcher.describe(a, weight)}"


def test_gradients_through_layers(ready: Started) -> None:
    linear = torch.nn.Linear(32, 32, bias=False, dtype=torch.float16)
    a, _ = reference.normal(32, 32, 32, "nn", torch.float16)
    ready.matmul(torch.relu(ready.matmul(a, linear.weight.t())), linear.weight).sum().backward()
    ours = linear.weight.grad.clone()
    linear.weight.grad = None
    torch.matmul(torch.relu(torch.matmul(a, linear.weight.t())), linear.weight).sum().backward()
    assert torch.equal(ours, linear.weight.grad)


@pytest.mark.parametrize("guard", [torch.no_grad, torch.inference_mode])
def test_no_gradients_asked_for(ready: Started, guard: Any) -> None:
    a, b = operands()
    a.requires_grad_()
    with guard():
        c = ready.matmul(a, b)
        reference.assert_exact(c, a, b)
        assert c.is_inference() == (guard is torch.inference_mode) and not c.requires_grad
        reference.assert_exact(ready.matmul(a, b, out=c), a, b)
    assert launcher.counters()["hits"] == 4


def test_autograd_sees_that_out_changed(ready: Started) -> None:
    # Without a new version of out, backward would silently use the overwritten values.
    a, b = operands()
    out = torch.ones(32, 32, dtype=torch.float16)
    x = torch.ones(32, 32, dtype=torch.float16, requires_grad=True)
    y = (x * out).sum()
    version = out._version
    reference.assert_exact(ready.matmul(a, b, out=out), a, b)
    assert out._version == version + 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()
    with torch.inference_mode():
        reference.assert_exact(ready.matmul(a, b, out=torch.empty_like(out)), a, b)


def test_an_inference_tensor_is_written_in_inference_mode_alone(ready: Started) -> None:
    # matmul raised nothing where torch does: what bumps versions lets such tensors be.
    a, b = operands()
    with torch.inference_mode():
        out = torch.zeros(32, 32, dtype=torch.float16)
    for guard in (contextlib.nullcontext(), torch.no_grad()):
        with guard, pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
            ready.matmul(a, b, out=out)
    assert ready.fallbacks() == {"mismatch": 2}
    with torch.inference_mode():
        reference.assert_exact(ready.matmul(a, b, out=out), a, b)
    assert launcher.counters()["hits"] == 3


def test_autocast(ready: Started) -> None:
    a, b = operands()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        c = ready.matmul(a, b)
        assert c.dtype == torch.bfloat16
        assert torch.equal(c, torch.matmul(a, b))
    assert ready.fallbacks() == {"mode": 1}
    reference.assert_exact(ready.matmul(a, b), a, b)
    assert launcher.counters()["hits"] == 3


def test_function_mode(ready: Started) -> None:
    class Negate(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = func(*args, **kwargs or {})
            return -result if func in (torch.matmul, torch.mm) else result

    a, b = operands()
    with Negate():
        c = ready.matmul(a, b)
    reference.assert_exact(-c, a, b)


def test_a_default_device_is_no_reason_for_torch(ready: Started) -> None:
    """It is a function mode of torch's own that gives new tensors a device: nothing to a product.
    Every call went to torch, and nothing but the counters said so."""
    a, b = operands()
    for there in ("cpu", "meta"):  # a result that went by it would have no memory on the latter
        with torch.device(there):
            reference.assert_exact(ready.matmul(a, b), a, b)
            assert torch_state.state(a, b) is None
        torch.set_default_device(there)
        try:
            reference.assert_exact(ready.matmul(a, b), a, b)
            reference.assert_exact(ready.matmul(a.view(2, 16, 32), b).view(32, 32), a, b)
        finally:
            torch.set_default_device(None)
    assert launcher.counters()["hits"] == 2 + 6 and ready.fallbacks() == {}


def test_a_default_device_hides_no_other_mode(ready: Started) -> None:
    class Seen(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(func)
            return func(*args, **kwargs or {})

    class Derived(DeviceContext):  # type: ignore[misc]
        pass

    a, b = operands()
    seen: list[Any] = []
    with torch.device("cpu"), Seen():
        reference.assert_exact(ready.matmul(a, b), a, b)
    assert torch.matmul in seen
    with Derived("cpu"):
        reference.assert_exact(ready.matmul(a, b), a, b)
    with torch.device("cpu"), torch.autocast("cpu", dtype=torch.bfloat16):
        assert ready.matmul(a, b).dtype == torch.bfloat16
    assert ready.fallbacks() == {"mode": 3} and launcher.counters()["hits"] == 2


def test_dispatch_mode(ready: Started) -> None:
    class Record(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(func)
            return func(*args, **kwargs or {})

    a, b = operands()
    seen: list[Any] = []
    with Record():
        reference_free = ready.matmul(a, b)
    assert seen == [torch.ops.aten.mm.default]
    reference.assert_exact(reference_free, a, b)


def test_fake_tensors(ready: Started) -> None:
    from torch._subclasses import FakeTensorMode

    a, b = operands()
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        assert isinstance(ready.matmul(a, b), torch._subclasses.FakeTensor)
    fake_a, fake_b = mode.from_tensor(a), mode.from_tensor(b)
    assert isinstance(ready.matmul(fake_a, fake_b), torch._subclasses.FakeTensor)
    assert ready.fallbacks() == {"mode": 1, "tensor_type": 1}


def test_traced_graphs_hold_the_product(ready: Started) -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    a, b = operands()
    graph = make_fx(lambda x, y: ready.matmul(x, y))(a, b)
    reference.assert_exact(graph(-a, b), -a, b)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        script = torch.jit.trace(lambda x, y: ready.matmul(x, y), (a, b))
    reference.assert_exact(script(-a, b), -a, b)


def test_compiled(ready: Started) -> None:
    a, b = operands()
    compiled = torch.compile(lambda x, y: ready.matmul(x + x, y) + 1, backend="eager")
    reference.assert_exact(compiled(a, b) - 1, a + a, b)


def test_vmap(ready: Started) -> None:
    a, b = reference.cancelling(96, 32, 32, "nn", torch.float16)
    batched = torch.vmap(ready.matmul, in_dims=(0, None))(a.view(3, 32, 32), b)
    reference.assert_exact(batched.reshape(96, 32), a, b)


def test_functional_derivatives(ready: Started) -> None:
    a, b = reference.normal(32, 32, 32, "nn", torch.float16)
    ones = torch.ones(32, 32, dtype=torch.float16)
    grad = torch.func.grad(lambda x: ready.matmul(x, b).sum())(a)
    reference.assert_product(grad, ones, b.t())
    value, tangent = torch.func.jvp(lambda x: ready.matmul(x, b), (a,), (ones,))
    reference.assert_product(value, a, b)
    reference.assert_product(tangent, ones, b)
    functional = torch.func.functionalize(lambda x: ready.matmul(x, b))(a)
    reference.assert_product(functional, a, b)


def test_dual_numbers(ready: Started) -> None:
    from torch.autograd import forward_ad

    a, b = reference.normal(32, 32, 32, "nn", torch.float16)
    ones = torch.ones(32, 32, dtype=torch.float16)
    with forward_ad.dual_level():
        dual = ready.matmul(forward_ad.make_dual(a, ones), b)
        value, tangent = forward_ad.unpack_dual(dual)
    reference.assert_product(value, a, b)
    assert tangent is not None
    reference.assert_product(tangent, ones, b)


def test_subclasses(ready: Started) -> None:
    class Named(torch.Tensor):
        pass

    a, b = operands()
    for x, y in ((a.as_subclass(Named), b), (a, b.as_subclass(Named))):
        c = ready.matmul(x, y)
        assert type(c) is Named
        reference.assert_exact(c.as_subclass(torch.Tensor), a, b)
    assert ready.fallbacks() == {"tensor_type": 2}


def test_tensors_without_plain_data(ready: Started) -> None:
    a, b = operands()
    zero = torch._efficientzerotensor((32, 32), dtype=torch.float16)
    assert not ready.matmul(zero, b).any()
    complex_a = torch.complex(a.float(), -a.float())
    wanted = torch.matmul(complex_a.conj(), complex_a)
    assert torch.equal(ready.matmul(complex_a.conj(), complex_a), wanted)
    # fp16 with the negative bit: the imaginary part of a conjugate, on torch's own path because
    # its elements are never neighbours.
    negative = torch.complex(a, a).conj().imag
    assert negative.is_neg()
    reference.assert_exact(ready.matmul(negative, b), -a, b)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sparse = a.float().to_sparse_csr()
    assert torch.equal(ready.matmul(sparse, b.float()), a.float() @ b.float())
