"""Comparisons of a kernel's launches that are queued on a device, and what is told of them.

Made by `checker`, which also has them read. Nothing here knows what is right of an element.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

#: What is counted, in the order in which it is told.
WRONG, TOUCHED, CHANGED, DIFFER, DIRTY = FAULTS = (
    "elements wrong or unwritten",
    "guards touched",
    "input elements changed",
    "elements differ from run to run",
    "workspace words not left absent",
)


class NumericError(AssertionError):
    """A kernel computed something else than A @ B; the message names the check and the problem."""


@dataclass(frozen=True, slots=True)
class Queued:
    """A comparison whose numbers are on their way: the norms of the error, of what rounding alone
    makes of it and of the whole; the count of elements in these; what was counted of what, and what
    it is to be; and the bound on the relative error, by the second and the fourth number."""

    name: str
    norms: tuple[torch.Tensor, ...]
    normal: torch.Tensor
    counts: Sequence[tuple[str, torch.Tensor]]
    wanted: Mapping[str, int]
    limit: Callable[[float, int], float]

    def read(self, norms: Sequence[float], normal: int, counts: Sequence[int]) -> float:
        """The relative error. Raises NumericError where anything is wrong."""
        left = {**dict.fromkeys(FAULTS, 0), **self.wanted}
        for (what, _), count in zip(self.counts, counts, strict=True):
            left[what] -= count
        found = [f"{abs(count)} {what}" for what, count in left.items() if count]
        scale = max(norms[2], 1e-300)
        relative, ideal = norms[0] / scale, norms[1] / scale
        if not relative <= self.limit(ideal, normal):
            found.append(f"relative error {relative:.2e}, {ideal:.2e} of it from rounding")
        if found:
            raise NumericError(f"{self.name}: {', '.join(found)}")
        return relative


@dataclass(slots=True)
class Numeric:
    """Verdict over all checks of one kernel."""

    max_rel_err: float = 0.0
    shapes_tested: int = 0
    pending: list[Queued] = field(default_factory=list)

    def settle(self) -> None:
        """Read what is queued. Raises NumericError for the first that fails."""
        pending, self.pending = self.pending, []
        if not pending:
            return
        norms = iter(torch.stack([each for one in pending for each in one.norms]).tolist())
        counted = [each for one in pending for each in (one.normal, *(c for _, c in one.counts))]
        counts = iter(torch.stack(counted).tolist())
        for one in pending:
            of_one = [next(norms) for _ in one.norms], next(counts)
            relative = one.read(*of_one, [next(counts) for _ in one.counts])
            self.max_rel_err = max(self.max_rel_err, relative)
        self.shapes_tested += len(pending)
