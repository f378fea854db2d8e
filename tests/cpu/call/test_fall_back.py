"""A call that goes to torch is made there once, and what it raises is the caller's: torch stops a
recomputation by an exception of its own, and hooks, modes and signal handlers raise as they like.
"""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from tests import reference
from tests.cpu.common.subclass import watching
from tests.fake_driver import Started


@pytest.fixture(params=["served", "not served"])
def torchs(fake: Started, request: pytest.FixtureRequest) -> Started:
    """Whether or not there is a kernel, torch's state or the table sends these calls to torch."""
    if request.param == "served":
        fake.serve("ptr_v1")
    return fake


def operands() -> tuple[torch.Tensor, torch.Tensor]:
    return reference.normal(32, 32, 32, "nn", torch.float16)


class Watching(TorchDispatchMode):
    """Counts products, and does something at each."""

    def __init__(self, act: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self.act = act
        self.calls = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> torch.Tensor:
        if func.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.matmul):
            self.calls += 1
            self.act()
        result: torch.Tensor = func(*args, **kwargs or {})
        return result


@pytest.mark.parametrize("reentrant", [False, True])
def test_defect_01_checkpoints(torchs: Started, reentrant: bool) -> None:
    """Recomputation ended in `AssertionError: target_frame.early_stop is set`."""
    a, b = operands()
    a.requires_grad_()

    def product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.relu(torchs.matmul(x, y))

    checkpoint(product, a, b, use_reentrant=reentrant).sum().backward()
    through = ((a.double() @ b.double()) > 0).half()
    assert a.grad is not None
    reference.assert_product(a.grad, through, b.t())


def test_defect_01_saved_tensor_hooks_that_raise(torchs: Started) -> None:
    packed = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        packed.append(tensor)
        raise LookupError("no room")

    a, b = operands()
    with saved_tensors_hooks(pack, lambda x: x), pytest.raises(LookupError, match="no room"):
        torchs.matmul(a.requires_grad_(), b)
    assert len(packed) == 1


def test_defect_01_dispatch_modes_that_raise(torchs: Started) -> None:
    def refuse() -> None:
        raise ValueError("not here")

    a, b = operands()
    with pytest.raises(ValueError, match="not here"), Watching(refuse) as seen:
        torchs.matmul(a, b)
    assert seen.calls == 1


def test_defect_01_signal_handlers_that_raise(torchs: Started) -> None:
    def late(*_: object) -> None:
        raise TimeoutError("too late")

    a, b = operands()
    seen = Watching(lambda: os.kill(os.getpid(), signal.SIGUSR1))
    before = signal.signal(signal.SIGUSR1, late)
    try:
        with pytest.raises(TimeoutError, match="too late"), seen:
            torchs.matmul(a, b)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert seen.calls == 1


def test_defect_01_warnings_that_are_errors(torchs: Started) -> None:
    a, b = operands()
    seen = Watching(lambda: warnings.warn("so", stacklevel=1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="so"), seen:
            torchs.matmul(a, b)
        assert seen.calls == 1
        # torch's own, of an output that it resizes: it was swallowed, and the output then fitted.
        out = torch.zeros(3, dtype=torch.float16)
        with pytest.raises(UserWarning, match="resized"):
            torchs.matmul(a, b, out=out)


def test_defect_13_an_output_of_a_subclass(torchs: Started) -> None:
    """Its __torch_function__ saw mm."""
    seen: list[Any] = []
    named = watching(seen)

    a, b = operands()
    out = torch.zeros(32, 32, dtype=torch.float16).as_subclass(named)
    torchs.matmul(a, b, out=out)
    assert seen == [torch.matmul]
    reference.assert_product(out.as_subclass(torch.Tensor), a, b)
