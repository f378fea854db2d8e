"""What became of a case of the corpus: written by `run` and, for what launches kernels,
`on_gpu`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class CaseOutcome:
    """What became of a case. `got_gate` is the gate that rejected it, or "pass"; `undecided` that
    the gates of this stage passed it and others must decide. `further` names the problems that the
    size gate asks for."""

    name: str
    what: str
    expect: list[str]
    got_gate: str
    detail: str
    seconds: float
    undecided: bool = False
    further: dict[str, Any] = field(default_factory=dict)

    @property
    def as_expected(self) -> bool:
        return self.got_gate in self.expect
