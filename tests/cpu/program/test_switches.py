"""Who may enable kernels in torch's own products, for how long, and what is said of it."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch

import hgemm_packs
from hgemm_packs import launcher, report, settings
from hgemm_packs.torch_hooks import program
from tests import reference
from tests.cpu.common.scripts import run
from tests.cpu.common.strictly import strict
from tests.cpu.program.common import SIDE, Hits, operands
from tests.fake_driver import Started


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
        assert moved(lambda: torch.addmm(a, a, b)) == hit
        batch = {"fallbacks": 1, "fallback not_measured": 1}
        assert moved(lambda: torch.bmm(torch.stack([a, a]), torch.stack([b, b]))) == batch


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


@pytest.mark.skipif(torch.version.cuda is not None, reason="a torch with CUDA")
def test_a_torch_without_cuda_is_left_alone() -> None:
    said = run(
        "import torch, hgemm_packs\n"
        "hgemm_packs.enable()\n"
        "a = torch.ones(8, 8)\n"
        "print(torch.equal(a @ a, 8 * a), 'hgemm_packs:1' in torch._C._dispatch_dump('aten::mm'))"
    )
    assert said.startswith("True False\n")


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
