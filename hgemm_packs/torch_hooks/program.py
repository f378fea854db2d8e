"""Kernels for a whole program: torch's own products, whoever asks for them.

`enable` and `enabled` have the launcher put its functions in place of torch's mm, bmm, addmm and
the like, below autograd (csrc/launcher/override.c). Called by users, and by `report` and
`nn.warm`, which ask whether it is so.
"""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Iterator
from typing import Any

from .. import launcher, neutral
from ..settings import LOGGER, settings

_lock = threading.RLock()
_everywhere = False  # by enable()
#: An operator that torch calls once, for C to learn how arguments lie on torch's stacks. torch
#: forgets it with its library.
_lessons: list[Any] = []
_blocks = 0  # of enabled(), in all threads, that have begun and not ended


def is_enabled() -> bool:
    """Whether kernels run torch's own products."""
    return _everywhere or _blocks > 0


def enable() -> None:
    """Let kernels run the products of the whole program, of code that calls torch alone.

    A product of two matrices, [M, K] @ [K, N] of float16 or bfloat16 on one CUDA device, is run by
    a kernel that serves it, whoever asks torch for it, in every thread: torch.mm, torch.matmul,
    `@`, torch.bmm of one matrix, their `out=`, torch.nn.Linear, gradients of all of these, under
    autocast, in compiled code. Autograd and all else of torch go on above.

    So is a sum with such a product, by a kernel that adds: torch.addmm, torch.baddbmm of one
    matrix and a Linear with a bias, where a bias [N] or a packed matrix [M, N] is added and alpha
    and beta are 1; torch's own addmm with an activation, where that is of a bias. With beta 0
    torch reads nothing but the product, and a kernel runs that. Kernels of sums round once.

    Any other product or sum is torch's, to the bit. So is float16 where
    torch.backends.cuda.matmul.allow_fp16_accumulation asks for what no kernel does: kernels add up
    in float32, which torch's other flags allow. A torch in which no way to sums is known runs all
    of them itself, and the log says so.

    `counters()` counts what kernels ran, and of float16 and bfloat16 what torch ran, with reasons.
    HGEMM_PACKS_STRICT raises nothing here, for a whole program multiplies what no table knows.
    `disable()` and HGEMM_PACKS_OFF=1 win over it.

    The first call puts our functions at torch's operators, but for those that another library has
    replaced, and there they stay: with nothing enabled they call torch's.

    Raises RuntimeError where this torch, or this Python, offers no way to do that. May be called
    twice; `restore_torch()` ends it.

    Example:

        hgemm_packs.enable()
        model(x).sum().backward()
        hgemm_packs.restore_torch()
    """
    global _everywhere
    with _lock:
        _install()
        _everywhere = True
        _switch()


def restore_torch() -> None:
    """End what `enable()` began: torch runs its products again, all of them.

    A block of `enabled()` that has not ended, in any thread, stays in force. `matmul` and the
    layers of hgemm_packs get kernels as before.

    Raises nothing, and may be called where nothing is enabled.

    Example:

        hgemm_packs.enable()
        hgemm_packs.restore_torch()
    """
    global _everywhere
    with _lock:
        _everywhere = False
        _switch()


@contextlib.contextmanager
def enabled() -> Iterator[None]:
    """A block in which kernels run the products of the whole program, as `enable()` has them.

    The block is of the whole process, of other threads too: a gradient is computed in one. Blocks
    may be nested, and blocks of several threads may overlap. Torch runs its products again when the
    last block has ended, by an exception or not. What `enable()` began goes on after it.

    Raises what `enable()` raises.

    Example:

        with hgemm_packs.enabled():
            y = model(x)
    """
    global _blocks
    with _lock:
        _install()
        _blocks += 1
        _switch()
    try:
        yield
    finally:
        with _lock:
            _blocks -= 1
            _switch()


def _switch() -> None:
    launcher.serve_program(is_enabled())


def _install() -> None:
    """Once per process. With kernels switched off by the environment, not even that."""
    if settings().off:
        return
    # torch says that a kernel is replaced, which is what was asked for. Only inside one of its own
    # functions it says so as a warning of Python's, and apply_ is one that calls us.
    warnings.filterwarnings("ignore", r"(?s).*new kernel: registered at hgemm_packs", UserWarning)
    neutral.call(_inside_torch)


def _inside_torch() -> None:
    import torch

    raised: list[BaseException] = []
    put: list[bool | None] = []

    def install(value: float) -> float:
        try:
            put.append(launcher.override(_find_torchs))
        except BaseException as error:
            raised.append(error)
        return value

    one = torch.zeros(1, device="cpu")
    if not _lessons:
        _lessons.append(torch.library.Library("hgemm_packs_lessons", "DEF"))
        _lessons[0].define("numbers(Tensor x, Scalar whole, Scalar real, bool yes) -> Tensor")
    one.apply_(install)
    if raised:
        raise raised.pop()
    if put == [True]:
        torch.ops.hgemm_packs_lessons.numbers(one, 3, 0.5, True)
    elif put == [False]:
        LOGGER.warning("addmm and the like stay torch's: this torch is not known here")


def _find_torchs(operator: str, key: str) -> int:
    """The number of the dispatch key, where torch's dispatcher has torch's own function, else 0:
    it has another library's."""
    import torch

    dumped = torch._C._dispatch_dump(f"aten::{operator}")
    lines = [line for line in dumped.splitlines() if line.startswith((f"{key}: ", f"{key} "))]
    own = len(lines) == 1 and f"/Register{key}" in lines[0]
    if not own:
        LOGGER.warning("aten::%s on %s is not torch's own, and is left alone", operator, key)
    return int(getattr(torch._C.DispatchKey, key)) if own else 0
