"""A loaded kernel as an arm: what gates and measurements launch.

A kernel with a workspace gets one of the arm's own, so that a candidate that spoils its counters
spoils no other's launches, and a captured launch replays with memory that nobody else writes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from hgemm_packs import launcher
from hgemm_packs.workspace import Workspace

if TYPE_CHECKING:
    from hgemm_packs._C import Kernel

FLOAT_BYTES = 4


class Scratch:
    """Room for partial sums that arms share whose launches never overlap: thousands of kernels are
    loaded at a time. It grows by a half or more, since arms keep what they were last given."""

    def __init__(self) -> None:
        self._partials = torch.empty(0)

    def room(self, size: int, device: torch.device) -> torch.Tensor:
        """At least `size` bytes."""
        elements, present = size // FLOAT_BYTES, self._partials.numel()
        if present < elements or self._partials.device != device:
            self._partials = torch.empty(max(elements, present * 3 // 2), device=device)
        return self._partials


class Arm:
    """`kernel` as a function of (a, b, c) that queues it on the current stream.

    Launches of one arm must follow one another, and a graph captured for a problem must not be
    replayed once the arm has met a larger one. Raises what `launcher.launch` raises.
    """

    def __init__(self, kernel: Kernel, scratch: Scratch | None = None) -> None:
        self._kernel, self._scratch = kernel, scratch or Scratch()
        self._workspace: Workspace | None = None

    def __call__(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
        launcher.launch(self._kernel, a, b, c, self._fitting(c))

    def twin(self) -> Arm:
        """The same kernel with a workspace of its own, for launches at the same time."""
        return Arm(self._kernel)

    def scrub(self, c: torch.Tensor) -> None:
        """NaN for partial sums, ahead of a launch into `c`. What was zero stays zero."""
        workspace = self._fitting(c)
        if workspace is not None:
            workspace.partials.fill_(math.nan)

    def dirty(self) -> torch.Tensor | int:
        """How many counters are not zero."""
        return 0 if self._workspace is None else torch.count_nonzero(self._workspace.counters)

    def _fitting(self, c: torch.Tensor) -> Workspace | None:
        """A workspace for a product into `c`, None where the kernel needs none."""
        counters, size = self._kernel.workspace(*c.shape)
        held = self._workspace
        if not counters:
            return None
        if held is None or held.counters.numel() < counters or held.room < size:
            zeros = torch.zeros(counters, dtype=torch.int32, device=c.device)
            held = self._workspace = Workspace(zeros, self._scratch.room(size, c.device))
        return held
