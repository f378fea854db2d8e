"""Dispatch modes, one story each: of test_mode_flow.py."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .sides import Counting, Matmul, Note, half


def operands() -> tuple[torch.Tensor, torch.Tensor]:
    return half(seed=1), half(seed=2)


def _raises(product: Matmul, note: Note, error: BaseException) -> object:
    def act() -> None:
        raise error

    operators = Counting(act)
    try:
        with operators:
            return product(*operands())
    finally:
        note(operators.seen)


def defect_01_dispatch_raises(product: Matmul, note: Note) -> object:
    return _raises(product, note, ValueError("not here"))


def defect_01_dispatch_raises_torchs_own(product: Matmul, note: Note) -> object:
    return _raises(product, note, torch.OutOfMemoryError("of memory"))


def defect_01_dispatch_raises_not_implemented(product: Matmul, note: Note) -> object:
    return _raises(product, note, NotImplementedError("no"))


def dispatch_raises_what_is_no_exception(product: Matmul, note: Note) -> object:
    return _raises(product, note, KeyboardInterrupt("now"))


def defect_01_dispatch_raises_at_first(product: Matmul, note: Note) -> object:
    """What fails once and would succeed at a second attempt."""
    attempts: list[int] = []

    def act() -> None:
        attempts.append(1)
        if len(attempts) == 1:
            raise ConnectionError("try again")

    try:
        with Counting(act):
            return product(*operands())
    finally:
        note(attempts)


def defect_01_dispatch_of_gradients_raises(product: Matmul, note: Note) -> object:
    attempts: list[int] = []

    def act() -> None:
        attempts.append(1)
        raise ConnectionError("no")

    x, y = operands()
    try:
        with Counting(act):
            return product(x.requires_grad_(), y)
    finally:
        note(attempts)
        note(x)


def dispatch_counts(product: Matmul, note: Note) -> object:
    with Counting() as operators:
        result = product(*operands())
    note(operators.seen)
    return result


def dispatch_answers(product: Matmul, note: Note) -> object:
    class Answer(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> object:
            result = func(*args, **kwargs or {})
            return -result if "mm" in str(func) else result

    with Answer():
        return product(*operands())


def dispatch_calls_again(product: Matmul, note: Note) -> object:
    """A handler has no mode on, so that a kernel may run within a call that torch has."""
    x, y = operands()
    inner: list[torch.Tensor] = []
    with Counting(lambda: inner.append(product(y, x))):
        result = product(x, y)
    note(inner)
    return result


def dispatch_recurses(product: Matmul, note: Note) -> object:
    x, y = operands()
    depth: list[int] = []

    class Again(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> object:
            depth.append(len(depth))
            if len(depth) == 10:
                raise RecursionError("deep enough")
            with self:
                return product(x, y)

    try:
        with Again():
            return product(x, y)
    finally:
        note(depth)
