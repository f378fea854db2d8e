"""A program that calls torch alone gets kernels under enabled(), and torch's own bits elsewhere."""

from __future__ import annotations

import gc
import re
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import hgemm_packs
from hgemm_packs import launcher, report, settings
from hgemm_packs.torch_hooks import program
from tests import reference
from tests.campaign.sides import serve_all
from tests.cpu.common.scripts import run
from tests.cpu.common.strictly import strict
from tests.fake_driver import Started

SIDE = 32


@pytest.fixture
def served(fake: Started) -> Started:
    serve_all(fake)
    return fake


@pytest.fixture(autouse=True)
def ended() -> Iterator[None]:
    yield
    hgemm_packs.restore_torch()
    hgemm_packs.resume()
    assert program._blocks == 0


def operands(layout: str = "nn", seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    return reference.cancelling(SIDE, SIDE, SIDE, layout, torch.float16, seed=seed)


class Hits:
    """How many kernels have run since this was made."""

    def __init__(self) -> None:
        self._before = launcher.counters()["hits"]

    def __call__(self) -> int:
        return launcher.counters()["hits"] - self._before


def _one(x: torch.Tensor) -> torch.Tensor:
    return x.unsqueeze(0)


def _layer(weight: torch.Tensor) -> torch.nn.Linear:
    layer = torch.nn.Linear(SIDE, SIDE, bias=False, dtype=weight.dtype)
    layer.weight.data = weight
    return layer


WAYS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "mm": torch.mm,
    "operator": lambda a, b: a @ b,
    "matmul": torch.matmul,
    "mm out": lambda a, b: torch.mm(a, b, out=a.new_empty(SIDE, SIDE)),
    "linear": lambda a, b: functional.linear(a, b.t()),
    "layer": lambda a, b: _layer(b.t())(a).detach(),
    "bmm": lambda a, b: torch.bmm(_one(a), _one(b))[0],
    "bmm out": lambda a, b: torch.bmm(_one(a), _one(b), out=a.new_empty(1, SIDE, SIDE))[0],
    "folded": lambda a, b: torch.matmul(a.view(2, -1, SIDE), b).view(SIDE, SIDE),
    "einsum": lambda a, b: torch.einsum("ik,kj->ij", a, b),
    "inference": lambda a, b: _inference(a, b),
    "method": lambda a, b: a.mm(b),
}


@torch.inference_mode()
def _inference(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.mm(a.clone(), b)


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_a_product(served: Started, way: str) -> None:
    a, b = operands()
    hits = Hits()
    with hgemm_packs.enabled():
        c = WAYS[way](a, b)
    assert hits() == 1
    reference.assert_exact(c, a, b)
    WAYS[way](a, b)
    assert hits() == 1


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_every_layout(served: Started, layout: str) -> None:
    a, b = operands(layout)
    hits = Hits()
    with hgemm_packs.enabled():
        reference.assert_exact(a @ b, a, b)
    assert hits() == 1


def test_gradients_are_products_of_kernels(served: Started) -> None:
    x, weight = operands("nt")
    x.requires_grad_(), weight.requires_grad_()
    hits = Hits()
    with hgemm_packs.enabled():
        y = x @ weight
        assert hits() == 1
        y.backward(torch.ones_like(y))
    assert hits() == 3
    ones = torch.ones_like(y)
    reference.assert_exact(x.grad, ones, weight.detach().t())
    reference.assert_exact(weight.grad, x.detach().t(), ones)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints(served: Started, reentrant: bool) -> None:
    x, weight = operands()
    x.requires_grad_()
    hits = Hits()
    with hgemm_packs.enabled():
        y = checkpoint(lambda x: (x @ weight).relu(), x, use_reentrant=reentrant)
        y.backward(torch.ones_like(y))
    assert hits() == 3  # forward, again, and the gradient of x
    with torch.no_grad():
        mask = (x.double() @ weight.double() > 0).half()
    reference.assert_exact(x.grad, mask, weight.t())


def test_autocast_and_vmap(served: Started) -> None:
    a, b = operands()
    hits = Hits()
    with hgemm_packs.enabled():
        with torch.autocast("cpu", dtype=torch.float16):
            c = a.float() @ b.float()
        assert hits() == 1 and c.dtype == torch.float16
        reference.assert_exact(c, a, b)
        rows = torch.vmap(lambda row: row @ b)(a)
        assert hits() == 2
        reference.assert_exact(rows, a, b)
        (gradient,) = torch.func.grad(lambda x: (x @ b).sum().float(), argnums=(0,))(a)
        assert hits() == 3  # what a sum's gradient is of lies in memory once, as a single 1
    reference.assert_exact(gradient, torch.ones(SIDE, SIDE).half(), b.t())


def test_compiled_code(served: Started) -> None:
    a, b = operands()
    compiled = torch.compile(lambda x, y: (x @ y) + 1, fullgraph=True)
    compiled(a, b)
    hits = Hits()
    with hgemm_packs.enabled():
        c = compiled(a, b)
    assert hits() == 1
    assert torch.equal(c, (reference.product(a, b) + 1).half())
    compiled(a, b)
    assert hits() == 1


def _strided_out() -> torch.Tensor:
    return torch.zeros(SIDE, 2 * SIDE).half()[:, ::2]


#: Calls that no kernel serves: the function, and what of tensors it is called with.
MISSES: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "float32": lambda a, b: a.float() @ b.float(),
    "odd sizes": lambda a, b: a[:, :31] @ b[:31, :7],
    "addmm": lambda a, b: torch.addmm(b, a, b),
    "addmm with numbers": lambda a, b: torch.addmm(b, a, b, beta=0.5, alpha=2),
    "addmm of beta 0": lambda a, b: torch.addmm(b, a, b, beta=0),
    "addmm out": lambda a, b: torch.addmm(b, a, b, out=torch.empty_like(a)),
    "addmm in place": lambda a, b: b.clone().addmm_(a, b),
    "activation": lambda a, b: torch._addmm_activation(b[0], a, b, use_gelu=True),
    "bias": lambda a, b: functional.linear(a, b, b[0]),
    "batch": lambda a, b: torch.bmm(torch.stack([a, b]), torch.stack([b, a])),
    "baddbmm": lambda a, b: torch.baddbmm(_one(a), _one(a), _one(b), beta=2),
    "vector": lambda a, b: a @ b[0],
    "no rows": lambda a, b: a[:0] @ b,
    "no terms": lambda a, b: a[:, :0] @ b[:0],
    "no columns": lambda a, b: torch.mm(a, b[:, :0]),
    "expanded": lambda a, b: a[:1].expand(SIDE, SIDE) @ b,
    "stepped": lambda a, b: a[:, ::2] @ b[::2],
    "strided out": lambda a, b: torch.mm(a, b, out=_strided_out()),
    "transposed out": lambda a, b: torch.mm(a, b, out=torch.empty_like(a).t()),
    "resized out": lambda a, b: torch.mm(a, b, out=a.new_empty(0)),
    "own memory": lambda a, b: (lambda x: torch.mm(x, b, out=x.new_empty(SIDE, SIDE)))(a[:24]),
    "sparse": lambda a, b: torch.sparse.mm(a.float().to_sparse(), b.float()),
    "negative": lambda a, b: torch._neg_view(a.float()) @ b.float(),
    "complex": lambda a, b: a.to(torch.complex64).conj() @ b.to(torch.complex64),
    "meta": lambda a, b: (a.to("meta") @ b.to("meta")).new_zeros(1, device="cpu"),
}


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("miss", MISSES)
def test_everything_else_is_torchs_to_the_bit(served: Started, miss: str) -> None:
    a, b = reference.normal(SIDE, SIDE, SIDE, "nn", torch.float16)
    wanted = MISSES[miss](a, b)
    hits = Hits()
    with hgemm_packs.enabled():
        found = MISSES[miss](a, b)
    assert hits() == 0
    assert torch.equal(found, wanted) and found.stride() == wanted.stride()


#: Calls that torch refuses.
ERRORS: dict[str, Callable[[torch.Tensor], Any]] = {
    "shapes": lambda a: a @ a[:7],
    "dtypes": lambda a: a @ a.float(),
    "batches": lambda a: torch.bmm(torch.stack([a, a]), torch.stack([a, a, a])),
    "dimensions": lambda a: torch.mm(a, a[0]),
    "out dtype": lambda a: torch.mm(a, a, out=a.float()),
    "out bmm": lambda a: torch.bmm(_one(a), _one(a), out=_one(a).float()),
    "integers": lambda a: torch.mm(a.float(), a.int()),
}


@pytest.mark.parametrize("error", ERRORS)
def test_errors_are_torchs_and_keep_no_operand(served: Started, error: str) -> None:
    """torch hands over what it is called with; what it raises has to pass through C, which does
    not see it. Tensors of such a call stayed for good."""

    def message(a: torch.Tensor) -> str:
        with pytest.raises(RuntimeError) as raised:
            ERRORS[error](a)
        return str(raised.value)

    a, _ = operands()
    wanted = message(a)
    x, y = torch.ones(3, 3), operands()[0]
    gone = weakref.ref(y)
    with hgemm_packs.enabled():
        assert message(a) == wanted
        message(y)
        del y
        assert torch.equal(x @ x, 3 * x)  # the thread's next product
        gc.collect()
        assert gone() is None


def test_nothing_is_left_of_a_block_that_an_exception_ends(served: Started) -> None:
    a, b = reference.normal(SIDE, SIDE, SIDE, "nn", torch.float16)
    before, hits = a @ b, Hits()
    with pytest.raises(KeyError), hgemm_packs.enabled():
        a @ b
        raise KeyError
    assert hits() == 1 and not program.is_enabled()
    assert torch.equal(a @ b, before) and hits() == 1


def test_blocks_nest_and_restore_torch_ends_enable_alone(served: Started) -> None:
    a, b = operands()
    hits = Hits()
    hgemm_packs.enable()
    hgemm_packs.enable()
    with hgemm_packs.enabled(), hgemm_packs.enabled():
        pass
    a @ b
    assert hits() == 1
    with hgemm_packs.enabled():
        hgemm_packs.restore_torch()
        a @ b
        assert hits() == 2
    a @ b
    hgemm_packs.restore_torch()
    assert hits() == 2


def test_blocks_of_threads_overlap(served: Started) -> None:
    a, b = operands()
    begun, end = threading.Event(), threading.Event()

    def work() -> None:
        with hgemm_packs.enabled():
            begun.set()
            end.wait()

    other = threading.Thread(target=work)
    hits = Hits()
    with hgemm_packs.enabled():
        other.start()
        begun.wait()
    a @ b
    assert hits() == 1
    end.set()
    other.join()
    a @ b
    assert hits() == 1


def test_threads_multiply_while_others_come_and_go(served: Started) -> None:
    a, b = operands()
    wrong: list[object] = []

    def multiply() -> None:
        for _ in range(300):
            c = a @ b
            if not torch.equal(c.double(), reference.product(a, b)):
                wrong.append(c)

    def switch() -> None:
        for _ in range(300):
            with hgemm_packs.enabled():
                pass

    threads = [threading.Thread(target=each) for each in (multiply, multiply, switch, switch)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong and not program.is_enabled()


def test_the_off_switch_wins(served: Started) -> None:
    a, b = operands()
    hits, before = Hits(), launcher.counters().get("fallback off", 0)
    with hgemm_packs.enabled():
        with hgemm_packs.disabled():
            reference.assert_exact(a @ b, a, b)
            assert launcher.counters()["fallback off"] == before + 1
            served.matmul(a, b)
            assert launcher.counters()["fallback off"] == before + 2  # counted once
        assert hits() == 0
        a @ b
        assert hits() == 1


def test_calls_are_counted_once_with_their_reasons(served: Started) -> None:
    a, b = operands()
    odd = a[:, :31], b[:31, :7]

    def moved(call: Callable[[], object]) -> dict[str, int]:
        before = launcher.counters()
        call()
        return {
            k: n - before.get(k, 0) for k, n in launcher.counters().items() if n != before.get(k)
        }

    with hgemm_packs.enabled():
        hit = {"hits": 1, "launches": 1}
        assert moved(lambda: a @ b) == hit
        assert moved(lambda: served.matmul(a, b)) == hit
        why = {"fallbacks": 1, "fallback strided": 1}
        assert moved(lambda: odd[0] @ odd[1]) == why
        assert moved(lambda: served.matmul(*odd)) == why
        assert moved(lambda: a.float() @ b.float()) == {}
        assert moved(lambda: torch.addmm(a, a, b)) == {}
        shape = {"fallbacks": 1, "fallback shape": 1}
        assert moved(lambda: torch.bmm(torch.stack([a, a]), torch.stack([b, b]))) == shape


def test_strict_raises_nothing_in_a_whole_program(
    served: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = operands()
    strict(monkeypatch)
    with hgemm_packs.enabled():
        wanted = a[:, :31].double() @ b[:31, :8].double()
        assert torch.equal((a[:, :31] @ b[:31, :8]).double(), wanted.half().double())
        with pytest.raises(hgemm_packs.errors.FallbackError):
            served.matmul(a[:, :31], b[:31, :8])


def test_half_precision_sums_are_torchs_where_a_user_asks_for_them(served: Started) -> None:
    a, b = operands()
    flags = torch.backends.cuda.matmul
    hits = Hits()
    with hgemm_packs.enabled():
        for name in (
            "allow_fp16_reduced_precision_reduction",
            "allow_bf16_reduced_precision_reduction",
        ):
            before = getattr(flags, name)
            for value in (False, True):
                setattr(flags, name, value)
                reference.assert_exact(a @ b, a, b)
            setattr(flags, name, before)
        assert hits() == 4
        flags.allow_fp16_accumulation = True
        try:
            a @ b
            assert hits() == 4
            a.bfloat16() @ b.bfloat16()  # no such flag
            assert hits() == 5
        finally:
            flags.allow_fp16_accumulation = False
        a @ b
        assert hits() == 6


def test_a_kernel_that_fails_leaves_the_call_to_torch(served: Started) -> None:
    a, b = operands()
    served.control.fail_launches = 1
    out = torch.empty_like(a)
    with hgemm_packs.enabled():
        reference.assert_exact(torch.mm(a, b), a, b)
        reference.assert_exact(torch.mm(a, b, out=out), a, b)
    assert served.fallbacks()["launch_failed"]
    served.control.fail_launches = 0


def test_an_exception_of_the_choice_does_not_reach_the_program(
    fake: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve_all(fake)
    a, b = operands()

    def fail(*_: object) -> None:
        raise ZeroDivisionError("of a pack")

    monkeypatch.setattr("hgemm_packs.select.resolve", fail)
    said: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", said.append)
    with hgemm_packs.enabled():
        reference.assert_exact(a @ b, a, b)
    assert [each.exc_type for each in said] == [ZeroDivisionError]

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("hgemm_packs.select.resolve", interrupt)
    with hgemm_packs.enabled(), pytest.raises(KeyboardInterrupt):
        a @ b
        for _ in range(1000):
            pass


def test_modes_and_subclasses_see_torchs_operators(served: Started) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils._python_dispatch import TorchDispatchMode

    seen: list[str] = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(str(func))
            return func(*args, **kwargs or {})

    a, b = operands()
    hits = Hits()
    with hgemm_packs.enabled():
        with FakeTensorMode() as fake:
            made = fake.from_tensor(a) @ fake.from_tensor(b)
            assert made.shape == (SIDE, SIDE) and hits() == 0
        with Watch():
            c = a @ b
        assert seen == ["aten.mm.default"] and hits() == 1
        traced = torch.fx.experimental.proxy_tensor.make_fx(lambda x, y: x @ y)(a, b)
        assert "torch.ops.aten.mm" in traced.code
    reference.assert_exact(c, a, b)


def test_explain_says_that_gradients_do_not_prevent_it(
    served: Started, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "explain_problem", lambda problem, index: f"problem {problem}")
    a, b = operands()
    a.requires_grad_()
    report.explain(a, b)
    assert "fallback: autograd" in capsys.readouterr().out
    with hgemm_packs.enabled():
        report.explain(a, b)
    said = capsys.readouterr().out
    assert "fallback: autograd" not in said and said.startswith("enabled   below autograd")


def test_readmes_program(served: Started) -> None:
    text = (Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8")
    section = text[text.index("## A program that cannot be edited\n") :]
    (code,) = re.findall(r"```python\n(.*?)```", section[: section.index("\n## ")], re.DOTALL)
    a, b = operands()
    layer, hits = _layer(b.t().contiguous()), Hits()
    exec(code, {"model": layer, "x": a.requires_grad_()})
    assert hits() == 3
    reference.assert_exact(a.grad, torch.ones_like(a), b.t())


SCRIPT = """
import torch, warnings
from tests import fake_driver
import hgemm_packs
from hgemm_packs import dispatch
{before}
dispatch.start("libc.so.6", 1)
hgemm_packs.enable()
a = torch.ones(8, 8)
print(torch.equal(a @ a, 8 * a), "hgemm_packs:1" in torch._C._dispatch_dump("aten::mm"))
"""


def test_enabling_says_nothing() -> None:
    """torch warns of a replaced kernel, on standard error where C replaces it."""
    said = run(SCRIPT.format(before="warnings.simplefilter('error'); torch.set_warn_always(True)"))
    assert said.startswith("True True\n") and "Overriding" not in said


def test_another_librarys_operator_is_left_alone() -> None:
    before = """
library = torch.library.Library("aten", "IMPL")
warnings.simplefilter("ignore")
library.impl("mm", lambda a, b: 8 * torch.ones(8, 8), "CPU")
"""
    said = run(SCRIPT.format(before=before))
    assert said.startswith("True False\n")
    assert "aten::mm on CPU is not torch's own, and is left alone" in said
    assert "aten::bmm on" not in said


def test_the_environment_switches_it_off() -> None:
    assert run(SCRIPT.format(before=""), HGEMM_PACKS_OFF="1").startswith("True False\n")


def test_a_torch_without_the_functions(served: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise RuntimeError("this torch does not let C run its operators")

    monkeypatch.setattr(launcher, "override", refuse)
    with pytest.raises(RuntimeError, match="does not let C"):
        hgemm_packs.enable()
    with pytest.raises(RuntimeError, match="does not let C"), hgemm_packs.enabled():
        raise AssertionError("the block ran")
    assert not program.is_enabled()


def test_a_python_without_the_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "_C", None)
    with pytest.raises(RuntimeError, match="not built for this Python"):
        hgemm_packs.enable()
    assert not program.is_enabled() and not settings.is_off()
