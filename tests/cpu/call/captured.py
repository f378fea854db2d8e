"""Kernels for dependent launches, and graphs in which they follow others."""

from __future__ import annotations

from typing import Any

import torch

from hgemm_packs import launcher
from tests import fake_driver, reference
from tests.fake_driver import Started

MEMSET = 1  # a node that launches no kernel
EARLY = {"reads_ahead": True, "triggers_early": True}


def served(fake: Started, **changes: Any) -> Started:
    fake.serve("tma2_v1", **changes)
    fake.dependent = lambda problem: True
    return fake


def launched(fake: Started, m: int = 100) -> int:
    """One call of matmul; whether it was launched dependent."""
    a, b = reference.cancelling(m, 72, 64, "nn", torch.float16)
    reference.assert_exact(fake.matmul(a, b), a, b)
    assert not any(fake.fallbacks().values())
    return int(fake.control.pdl)


def loaded(
    device: int, pdl: bool, param_layout: str = "tma2_v1", layout: str = "nn", **changes: Any
) -> Any:
    epilogue = changes.get("epilogue")
    image = fake_driver.image("kernel", param_layout, layout, epilogue=epilogue)
    entry = fake_driver.entry(param_layout, layout, cubin=image, **changes)
    return launcher.load(device, entry, image, pdl)


def follow(fake: Started, *nodes: int | None) -> None:
    """The next launch waits for these."""
    fake.control.nodes[:] = [*nodes, None, None][:2]
    fake.control.node_count = len(nodes)


def zeros(rows: int, cols: int) -> torch.Tensor:
    return torch.zeros((rows, cols), dtype=torch.float16)
