"""Random choices that the checks of values share."""

from __future__ import annotations

import torch

from hgemm_packs.generator.gates.checker import Checker, size


def problem(run: Checker, k: int) -> tuple[int, int, int]:
    """Two tiles each way, partly filled."""
    e = run.entry
    return *run.shape(e.grid.tile_m + 5, e.grid.tile_n + 8), size(e.k, k)


def uniform(run: Checker, *shape: int) -> torch.Tensor:
    """Numbers from 0 to 1 in float32."""
    return torch.rand(shape, generator=run.generator, device=run.device)


def integers(run: Checker, most: int, *shape: int) -> torch.Tensor:
    """Whole numbers from -most to most."""
    return torch.randint(-most, most + 1, shape, generator=run.generator, device=run.device)


def in_steps(values: torch.Tensor, step: float) -> torch.Tensor:
    """Each of `values` as the nearest multiple of `step`, a power of two, in its own type."""
    return ((values.float() / step).round() * step).to(values.dtype)


def picks(run: Checker, count: int, below: int) -> torch.Tensor:
    """`count` numbers below `below`."""
    return torch.randint(below, (count,), generator=run.generator, device=run.device)


def shuffled(run: Checker, count: int) -> torch.Tensor:
    """The numbers below `count` in random order."""
    return torch.randperm(count, generator=run.generator, device=run.device)


def signs(run: Checker, *shape: int) -> torch.Tensor:
    """1 and -1 in float32."""
    return torch.where(uniform(run, *shape) < 0.5, -1.0, 1.0)


def spread(run: Checker, count: int, below: int) -> torch.Tensor:
    """`count` numbers below `below`, evenly spread and in random order, the last among them."""
    at = torch.arange(count, device=run.device) + uniform(run, count)
    at = (at * (below / max(1, count))).long().clamp_max(below - 1)
    at[-1:] = below - 1
    return at[shuffled(run, count)]
