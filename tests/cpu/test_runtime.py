"""What surrounds a call: capture, threads, STRICT, counters."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import pytest
import torch
from torch._C._dynamo import guards

from hgemm_packs import dispatch, launcher, reasons, select
from hgemm_packs.errors import FallbackError
from hgemm_packs.problem import Problem
from tests import fake_driver, reference
from tests.cpu.common.strictly import operands, strict
from tests.cpu.common.threads import run_in_threads
from tests.fake_driver import Started


def test_a_cold_kernel_is_not_loaded_while_capturing(fake: Started) -> None:
    fake.serve("tma3_v1")
    a, b = operands()
    fake.control.capturing = 1
    for _ in range(2):
        reference.assert_exact(fake.matmul(a, b), a, b)
    assert fake.fallbacks() == {"cold_capture": 2} and fake.control.loads == 0
    fake.control.capturing = 0
    reference.assert_exact(fake.matmul(a, b), a, b)  # not remembered as a fallback
    fake.control.capturing = 1
    reference.assert_exact(fake.matmul(a, b), a, b)  # warm: launches belong into the graph
    # A loaded kernel serves new problems too: nothing has to be loaded for them.
    a, b = operands(40)
    reference.assert_exact(fake.matmul(a, b), a, b)
    counts = launcher.counters()
    assert counts["hits"] == 3 and fake.control.loads == 1


def test_torchs_first_product_may_be_in_a_capture(
    fake: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    # All products before had been ours, so that torch made its cuBLAS handle during the capture,
    # which failed: CUBLAS_STATUS_NOT_INITIALIZED.
    modes: list[int] = []
    monkeypatch.setattr(torch.cuda, "device", lambda index: contextlib.nullcontext())
    monkeypatch.setattr(
        torch.cuda, "current_blas_handle", lambda: modes.append(fake.control.capture_mode)
    )
    fake.serve("tma3_v1")
    launcher.device_info(0)  # opens the driver, as C does before it asks
    base = (16, 16, 16)
    cold, other = ((32, 32, 32, layout, "f16", base, 1, "none", 1) for layout in ("nn", "nt"))
    for capturing in (0, 1):
        assert dispatch._resolve("cuda", other, 0, capturing) == "not_measured"
    assert dispatch._resolve("cuda", cold, 0, 1) == "cold_capture"
    assert isinstance(dispatch._resolve("cuda", cold, 0, 0), tuple)
    assert isinstance(dispatch._resolve("cuda", cold, 0, 1), tuple)
    # CU_STREAM_CAPTURE_MODE_RELAXED
    assert modes == [2, 2] and fake.control.capture_mode == 0


def test_a_thread_without_a_context_is_not_capturing(fake: Started) -> None:
    fake.serve("tma3_v1")
    fake.set_device(-1)
    a, b = operands()
    reference.assert_exact(fake.matmul(a, b), a, b)
    assert launcher.counters()["hits"] == 1 and fake.current_device() == -1


def test_four_threads(fake: Started) -> None:
    for layout in ("nn", "nt", "tn", "tt"):
        fake.serve("tma3_v1", layout)
    rounds = 150

    def work(layout: str, resets: bool) -> None:
        fake.set_device(0)
        cases = [operands(8 * i, layout) for i in range(1, 6)]
        wanted = [(a.double() @ b.double()).half() for a, b in cases]
        for i in range(rounds):
            (a, b), right = cases[i % 5], wanted[i % 5]
            out = torch.full_like(right, torch.nan)
            assert torch.equal(fake.matmul(a, b, out=out), right)
            assert torch.equal(fake.matmul(a, b), right)
            if resets and i % 7 == 0:
                launcher.reset_table()

    layouts = ("nn", "nt", "tn", "tt")
    run_in_threads(work, [(x, x == "tt") for x in layouts])
    assert launcher.counters() == {"hits": 8 * rounds, "launches": 8 * rounds, "fallbacks": 0}


def test_a_call_keeps_its_answer_though_the_table_forgets_it(
    fake: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Allocating may run Python, a finalizer for one, which may reset the table; the memory of the
    answer would then be another problem's."""
    a, b = operands()
    others = [operands(m) for m in range(40, 168, 8)]
    outputs = [torch.empty(len(x), 32, dtype=torch.float16) for x, _ in others]
    forget = False

    def allocate(*args: Any) -> torch.Tensor:
        if forget:
            launcher.reset_table()
            for (x, y), out in zip(others, outputs, strict=True):
                started.matmul(x, y, out=out)
        return torch.empty_strided(*args[:2], dtype=args[2])

    monkeypatch.setattr(guards, "_empty_strided_cpu", allocate)
    started = fake_driver.start(monkeypatch, fake.library)
    monkeypatch.setattr(select, "resolve", started.resolve)
    started.serve("tma3_v1")
    reference.assert_exact(started.matmul(a, b), a, b)
    forget = True
    reference.assert_exact(started.matmul(a, b), a, b)
    assert launcher.counters()["hits"] == 2 + len(others)


def test_the_first_calls_of_many_threads(fake: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.serve("tma3_v1")
    a, b = operands()
    right = (a.double() @ b.double()).half()
    results: list[torch.Tensor] = []
    barrier = threading.Barrier(4)

    def work() -> None:
        fake.set_device(0)
        barrier.wait()
        results.append(fake.matmul(a, b))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4 and all(torch.equal(result, right) for result in results)
    assert fake.control.loads == 1 and launcher.counters()["hits"] == 4


def test_strict(fake: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.serve("tma3_v1")
    strict(monkeypatch)
    a, b = operands()
    reference.assert_exact(fake.matmul(a, b), a, b)
    with pytest.raises(FallbackError, match=r"32x32x32 nt f16 .*not_measured: not served"):
        fake.matmul(*operands(32, "nt"))
    with pytest.raises(FallbackError, match="dtype: the operands are neither float16"):
        fake.matmul(a.float(), b.float())
    with pytest.raises(FallbackError, match="strided"):
        fake.matmul(a[:, :16], b[:16])
    with pytest.raises(FallbackError, match="autograd"):
        fake.matmul(a.clone().requires_grad_(), b)
    # A mistake of the caller is torch's to name, strict or not.
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        fake.matmul(a, b[:8])
    fake.control.capturing = 1
    fake.serve("tma2_v1", "tt")
    with pytest.raises(FallbackError, match="cold_capture"):
        fake.matmul(*operands(32, "tt"))


def test_counters(fake: Started) -> None:
    fake.serve("tma3_v1")
    a, b = operands()
    assert launcher.counters() == {"hits": 0, "launches": 0, "fallbacks": 0}
    for x, y in ((a, b), (a, b), (a.float(), b.float()), operands(32, "nt"), operands(32, "nt")):
        reference.assert_exact(fake.matmul(x, y), x, y)
    assert launcher.counters() == {
        "hits": 2,
        "launches": 2,
        "fallbacks": 3,
        "fallback dtype": 1,
        "fallback not_measured": 2,
    }
    assert len(fake.asked) == 2


def test_describe(fake: Started) -> None:
    a, b = operands(48, "nt")
    assert launcher.describe(a, b) == Problem(48, 32, 32, "nt", "f16")
    assert launcher.describe(a.bfloat16(), b.bfloat16()) == Problem(48, 32, 32, "nt", "bf16")
    assert launcher.describe(a[:, 4:28], b[4:28]) == Problem(
        48, 32, 24, "nt", "f16", base=(8, 8, 16), packed=False
    )
    assert launcher.describe(a.float(), b) == "mismatch"
    assert launcher.describe(a.float(), b.float()) == "dtype"
    assert launcher.describe(a[None], b[None]) == "shape"
    reference.assert_exact(fake.matmul(a, b), a, b)


def test_an_error_in_python_reaches_the_caller(
    fake: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(problem: Problem, device: int, **how: bool) -> None:
        raise KeyError(problem.m)

    a, b = operands()
    with monkeypatch.context() as patch:
        patch.setattr("hgemm_packs.select.resolve", broken)
        with pytest.raises(KeyError):
            fake.matmul(a, b)
    reference.assert_exact(fake.matmul(a, b), a, b)


def test_every_fallback_has_words(fake: Started) -> None:
    assert fake.matmul(*operands()) is not None
    codes = set(launcher._extension().counters()["fallbacks"]) | {"no_extension"}
    assert codes == {*reasons.WORDS, *select.STEPS}
