"""A loaded kernel as an arm: what gates and measurements launch.

A kernel with a workspace gets one of the arm's own, so that a candidate that spoils it spoils no
other's launches, and a captured launch replays with memory that nobody else writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from .. import launcher
from ..problem import WITHOUT_ADDEND
from ..workspace import ABSENT, Workspace, make_absent
from .operands import addend_of

if TYPE_CHECKING:
    from .._C import Kernel


class KernelArm:
    """`kernel` as a function of (a, b, c) that queues it on the current stream; with an `epilogue`
    that adds also of the addend, which is that of all measurements where none is given.

    Launches of one arm must follow one another, and a graph captured for a problem must not be
    replayed once the arm has met a larger one. Raises what `launcher.launch` raises.
    """

    def __init__(self, kernel: Kernel, epilogue: str = "none") -> None:
        self.kernel, self._epilogue = kernel, epilogue
        self._workspace: Workspace | None = None

    def __call__(
        self,
        a: torch.Tensor,
        b: torch.Tensor,
        c: torch.Tensor,
        addend: torch.Tensor | None = None,
    ) -> None:
        if addend is None and self._epilogue not in WITHOUT_ADDEND:
            addend = addend_of(self._epilogue, c)
        launcher.launch(self.kernel, a, b, c, self._make_fitting(c), addend)

    def twin(self) -> KernelArm:
        """The same kernel with a workspace of its own, for launches at the same time."""
        return KernelArm(self.kernel, self._epilogue)

    def prepare(self, c: torch.Tensor) -> None:
        """Have a workspace for launches into `c`, ahead of a capture or of another stream."""
        self._make_fitting(c)

    def count_dirty(self) -> torch.Tensor | int:
        """How many words of the workspace are not absent."""
        return 0 if self._workspace is None else (self._workspace.words != ABSENT).sum()

    def _make_fitting(self, c: torch.Tensor) -> Workspace | None:
        """A workspace for a product into `c`, None where the kernel needs none."""
        m, columns = c.shape[-2:]
        n = columns * 2 if self._epilogue == "gated_silu" else columns
        size = self.kernel.workspace(m, n)
        if not size:
            return None
        if self._workspace is None or self._workspace.room < size:
            self._workspace = Workspace(make_absent(size, c.device))
        return self._workspace
