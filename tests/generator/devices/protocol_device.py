"""The device of the protocol benchmarks on the CPU: see `stand_in`, whose machine it is on."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hgemm_packs.generator.devices import gpu, protocols
from hgemm_packs.measure import timing
from hgemm_packs.measure.operands import Operands, operands

EDGES = {"programmatic": 2, "full": 1}


def replay_class(machine: SimpleNamespace) -> type:
    """Replays that compute, and take 10 us a call without a launch of ours, 8 with plain ones and
    6 with programmatic ones; a chain's elementwise kernel alone takes 2."""

    class Replay:
        def __init__(self, arm: Any, sets: Sequence[Operands], calls: int) -> None:
            self._arm, self._sets, self.calls = arm, sets, calls
            arm(sets[0].a, sets[0].b, sets[0].c)  # as a real one does, so that no C is NaN

        def queue(self) -> None:
            before = machine.control.launches
            for i in range(min(self.calls, len(self._sets))):
                one = self._sets[i]
                self._arm(one.a, one.b, one.c)
            ours = machine.control.launches > before
            self._us = (6.0 if machine.control.pdl else 8.0) if ours else 10.0
            self._us = 2.0 if self._arm is timing.feed else self._us

        def has_started(self) -> bool:
            return True

        def us(self) -> float:
            return self._us

        def free(self) -> None:
            self._sets = ()

    return Replay


def install(machine: SimpleNamespace, patch: pytest.MonkeyPatch) -> None:
    """From now on `protocols.make` makes one."""
    replay = replay_class(machine)
    patch.setattr(timing, "Replay", replay)
    patch.setattr(timing, "_per_call_us", lambda arm, one, at: 10.0)
    patch.setattr(protocols, "stage", gpu.stage)
    patch.setattr(protocols, "Single", lambda arm, one: replay(arm, [one], 1))
    patch.setattr(protocols, "operands", lambda p, device, **kw: operands(p, "cpu", **kw))
    patch.setattr(protocols, "edges", lambda calls, one, at: EDGES)
    patch.setattr(torch.cuda, "memory_reserved", lambda index: 0)
