"""Right kernels, each with an order of its own in which it adds: functions of (a, b, c) on CPU
tensors. `honest`, `split_k`, `backwards` and `tensor_core` of the red team's are others."""

from __future__ import annotations

import torch

from tests.generator.redteam.cheats import Cheat, Tensor, product, tensor_core


def in_chunks(size: int) -> Cheat:
    """Sums of `size` of K, added one after the other in fp32."""

    def launch(a: Tensor, b: Tensor, c: Tensor) -> None:
        total = torch.zeros(c.shape)
        for x, y in zip(a.split(size, 1), b.split(size, 0), strict=True):
            total += product(x, y)
        c.copy_(total)

    return launch


def by_turns(a: Tensor, b: Tensor, c: Tensor) -> None:
    """Eight slices that have every eighth of K each, added pair by pair."""
    parts = [product(a[:, first::8], b[first::8]) for first in range(min(8, a.shape[1]))]
    while len(parts) > 1:
        parts = [sum(parts[i + 1 : i + 2], parts[i]) for i in range(0, len(parts), 2)]
    c.copy_(parts[0])


def cut_off_in_slices(a: Tensor, b: Tensor, c: Tensor) -> None:
    """Three tensor cores that share K, each of which cuts off; fp32 parts in a workspace."""
    size = -(-a.shape[1] // 48) * 16
    parts = []
    for x, y in zip(a.split(size, 1), b.split(size, 0), strict=True):
        part = torch.empty(c.shape)
        tensor_core(x, y, part)
        parts.append(part)
    c.copy_(torch.stack(parts).sum(0))
