"""Torch's control flow around a call: modes that raise, answer in torch's place or call again,
warnings that are errors, signal handlers that raise, states of a process.

Stories 01 and 13 are of defects: a call that raised inside torch was made again under another name,
and what watches functions saw mm where the caller had said matmul.
"""

from __future__ import annotations

import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from hgemm_packs import launcher, select
from tests import reference
from tests.campaign.dispatch_stories import (
    defect_01_dispatch_of_gradients_raises,
    defect_01_dispatch_raises,
    defect_01_dispatch_raises_at_first,
    defect_01_dispatch_raises_not_implemented,
    defect_01_dispatch_raises_torchs_own,
    dispatch_answers,
    dispatch_calls_again,
    dispatch_counts,
    dispatch_raises_what_is_no_exception,
    dispatch_recurses,
    operands,
)
from tests.fake_driver import Started

from .sides import PRODUCTS, Counting, Matmul, Note, Side, assert_same, by_product, serve_all


def function_mode_raises(product: Matmul, note: Note) -> object:
    class Refuse(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> object:
            names.append(getattr(func, "__name__", str(func)))
            if "matmul" in names[-1] or names[-1] == "mm":
                raise PermissionError(names[-1])
            return func(*args, **kwargs or {})

    names: list[str] = []
    try:
        with Refuse():
            return product(*operands())
    finally:
        note(names)


def function_mode_answers(product: Matmul, note: Note) -> object:
    class Answer(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> object:
            result = func(*args, **kwargs or {})
            return result + 1 if func in (torch.matmul, torch.mm) else result

    with Answer(), Answer():
        return product(*operands())


def functions_and_dispatch(product: Matmul, note: Note) -> object:
    class Names(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> object:
            names.append(getattr(func, "__name__", str(func)))
            return func(*args, **kwargs or {})

    names: list[str] = []
    with Names(), Counting() as operators:
        result = product(*operands())
    note([names, operators.seen])
    return result


def flops(product: Matmul, note: Note) -> object:
    x, y = operands()
    with FlopCounterMode(display=False) as counted:
        product(x.requires_grad_(), y).sum().backward()
    return counted.get_total_flops()


def a_profile_with_gradients(product: Matmul, note: Note) -> object:
    x, y = operands()
    product(x.requires_grad_(), y)
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        product(x, y).sum().backward()
    return {each.key: each.count for each in profiled.key_averages() if "mm" in each.key}


def autocast_and_its_cache(product: Matmul, note: Note) -> object:
    x, y = operands()
    weight = y.float().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        note(product(x.float(), weight))
        with torch.autocast("cpu", enabled=False):
            note(product(x, y))
        product(x.float(), weight).sum().backward()
    return weight.grad


def autocast_that_raises(product: Matmul, note: Note) -> object:
    x, y = operands()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        product(x, y)
        return product(x, y[:8])


def default_device(product: Matmul, note: Note) -> object:
    with torch.device("meta"):
        note(product(*operands()))
        return product(torch.empty(32, 32).half(), torch.empty(32, 32).half())


def default_dtype(product: Matmul, note: Note) -> object:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        return product(*operands())
    finally:
        torch.set_default_dtype(before)


def deterministic(product: Matmul, note: Note) -> object:
    torch.use_deterministic_algorithms(True)
    try:
        return product(*operands())
    finally:
        torch.use_deterministic_algorithms(False)


@contextmanager
def handler(number: int, act: Callable[..., object]) -> Iterator[None]:
    before = signal.signal(number, act)
    try:
        yield
    finally:
        signal.signal(number, before)


def _late(*_: object) -> None:
    raise TimeoutError("too late")


def defect_01_a_signal_inside(product: Matmul, note: Note) -> object:
    operators = Counting(lambda: os.kill(os.getpid(), signal.SIGUSR1))
    with handler(signal.SIGUSR1, _late):
        try:
            with operators:
                return product(*operands())
        finally:
            note(operators.seen)


def an_interrupt_inside(product: Matmul, note: Note) -> object:
    operators = Counting(lambda: os.kill(os.getpid(), signal.SIGINT))
    with handler(signal.SIGINT, signal.default_int_handler):
        try:
            with operators:
                return product(*operands())
        finally:
            note(operators.seen)


def a_signal_while_gradients_are_kept(product: Matmul, note: Note) -> object:
    x, y = operands()
    with handler(signal.SIGUSR1, _late):
        operators = Counting(lambda: os.kill(os.getpid(), signal.SIGUSR1))
        result = product(x.requires_grad_(), y)
        try:
            with operators:
                return result.sum().backward()
        finally:
            note(operators.seen)
            note(x)


def a_handler_multiplies(product: Matmul, note: Note) -> object:
    inner: list[torch.Tensor] = []
    operators = Counting(lambda: os.kill(os.getpid(), signal.SIGUSR1))
    with handler(signal.SIGUSR1, lambda *_: inner.append(product(*operands()))), operators:
        result = product(*operands())
    note(len(inner))
    return result


def defect_01_warnings_are_errors(product: Matmul, note: Note) -> object:
    operators = Counting(lambda: warnings.warn("so", RuntimeWarning, stacklevel=1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            with operators:
                return product(*operands())
        finally:
            note(operators.seen)


def warnings_are_shown_once(product: Matmul, note: Note) -> object:
    with Counting(lambda: warnings.warn("so", RuntimeWarning, stacklevel=1)):
        return product(*operands())


STORIES: dict[str, Callable[..., object]] = {
    each.__name__: each
    for each in (
        defect_01_dispatch_raises,
        defect_01_dispatch_raises_torchs_own,
        defect_01_dispatch_raises_not_implemented,
        dispatch_raises_what_is_no_exception,
        defect_01_dispatch_raises_at_first,
        defect_01_dispatch_of_gradients_raises,
        dispatch_counts,
        dispatch_answers,
        dispatch_calls_again,
        dispatch_recurses,
        function_mode_raises,
        function_mode_answers,
        functions_and_dispatch,
        flops,
        a_profile_with_gradients,
        autocast_and_its_cache,
        autocast_that_raises,
        default_device,
        default_dtype,
        deterministic,
        defect_01_a_signal_inside,
        an_interrupt_inside,
        a_signal_while_gradients_are_kept,
        a_handler_multiplies,
        defect_01_warnings_are_errors,
        warnings_are_shown_once,
    )
}


@pytest.mark.parametrize("way", PRODUCTS)
@pytest.mark.parametrize("name", STORIES)
def test_the_same_as_torch(
    ours: Started, name: str, way: str, request: pytest.FixtureRequest
) -> None:
    if name == "a_profile_with_gradients" and "recorded" in request.node.name:
        pytest.skip("torch's profiler does not see our kernels")
    assert_same(ours, by_product(STORIES[name], way))


def test_defect_01_an_output_is_resized_where_warnings_are_errors(ours: Started) -> None:
    """The error was swallowed, and the output then had the size that it should have had."""

    def story(side: Side, note: Note) -> object:
        out = torch.zeros(3, dtype=torch.float16)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                return side.matmul(*operands(), out=out)
        finally:
            note(out)

    assert_same(ours, story)


def test_a_signal_while_a_kernel_is_chosen(fake: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    """Choosing is Python, so that a handler may raise there; the next call chooses again."""
    serve_all(fake)

    def interrupted(*arguments: Any, **mode: Any) -> select.Selection:
        monkeypatch.setattr(select, "resolve", fake.resolve)
        os.kill(os.getpid(), signal.SIGUSR1)
        return fake.resolve(*arguments, **mode)

    monkeypatch.setattr(select, "resolve", interrupted)
    with handler(signal.SIGUSR1, _late), pytest.raises(TimeoutError, match="too late"):
        fake.matmul(*operands())
    reference.assert_exact(fake.matmul(*operands()), *operands())
    assert launcher.counters() == {"hits": 1, "launches": 1, "fallbacks": 0}


@pytest.mark.parametrize("seconds", [0.001, 0.003, 0.01])
def test_alarms_in_a_loop_of_kernels(fake: Started, seconds: float) -> None:
    """Every call before the alarm is whole, and so is every call after it."""
    serve_all(fake)
    x, y = operands()
    out = torch.zeros(32, 32, dtype=torch.float16)
    with handler(signal.SIGALRM, _late):
        for _ in range(20):
            done = 0
            with pytest.raises(TimeoutError):
                signal.setitimer(signal.ITIMER_REAL, seconds)
                while True:
                    fake.matmul(x, y, out=out)
                    done += 1
            assert done <= out._version <= done + 1
            out = torch.zeros(32, 32, dtype=torch.float16)
    reference.assert_exact(fake.matmul(x, y), x, y)
    counts = launcher.counters()
    assert counts["fallbacks"] == 0 and counts["hits"] == counts["launches"]


def test_threads_with_states_of_their_own(ours: Started) -> None:
    """A mode of one thread is not another's: each sees what torch would have shown it."""
    x, y = operands()
    wanted = torch.matmul(x, y)
    wrong: list[str] = []

    def quiet() -> None:
        with torch.inference_mode():
            if any(not torch.equal(ours.matmul(x, y), wanted) for _ in range(100)):
                wrong.append("quiet")

    def counted() -> None:
        for _ in range(100):
            with Counting() as operators:
                ours.matmul(x, y)
            if operators.seen != ["aten.mm.default"]:
                wrong.append(f"counted {operators.seen}")

    def kept() -> None:
        for _ in range(100):
            leaf = x.clone().requires_grad_()
            ours.matmul(leaf, y).sum().backward()
            if not torch.equal(leaf.grad, y.sum(1).expand(32, 32)):
                wrong.append("kept")

    threads = [threading.Thread(target=each) for each in (quiet, counted, kept, quiet)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
