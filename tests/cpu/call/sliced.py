"""Kernels with a workspace, and where it lies."""

from __future__ import annotations

from typing import Any

import torch

from hgemm_packs import launcher
from tests import fake_driver, reference
from tests.fake_driver import SLICES, Started

TILE = (64, 32)


def operands(m: int = 100, n: int = 72) -> tuple[torch.Tensor, torch.Tensor]:
    return reference.cancelling(m, n, 64, "nn", torch.float16, seed=m)


def ctas(m: int, n: int) -> int:
    return -(-m // TILE[0]) * -(-n // TILE[1]) * SLICES


def place(fake: Started, m: int = 100, n: int = 72) -> int:
    """The workspace of a call, whose values are checked. The stand-in wants its words absent and
    leaves them so."""
    a, b = operands(m, n)
    reference.assert_exact(fake.matmul(a, b), a, b)
    return int(fake.control.parts)


def torch_runs(fake: Started, m: int = 100, n: int = 72) -> None:
    a, b = operands(m, n)
    launches = fake.control.launches
    reference.assert_exact(fake.matmul(a, b), a, b)
    assert fake.control.launches == launches


def served(fake: Started, **changes: Any) -> Started:
    fake.serve("tma2_ws_v2", **changes)
    return fake


def no_memory(*_: object, **__: object) -> None:
    raise torch.OutOfMemoryError("made up")


def load(**changes: Any) -> Any:
    image = fake_driver.image("kernel", "tma2_ws_v2")
    return launcher.load(0, fake_driver.entry("tma2_ws_v2", cubin=image, **changes), image)
