"""What an isolated process does behind its gates."""

from __future__ import annotations

import pytest
import torch

from hgemm_packs.generator.core.spec import CompiledKernel, Status
from hgemm_packs.generator.devices import in_process
from hgemm_packs.generator.gates.numeric import NumericError
from hgemm_packs.generator.redteam.mutation import bases


@pytest.mark.parametrize(("reserved", "times"), [(1 << 30, 0), (5 << 30, 1)])
def test_a_process_keeps_no_card_s_memory_for_itself(
    reserved: int, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three processes had filled a card with problems, and kept it; no fourth found room."""
    given: list[int] = []

    def wrong(*_: object) -> None:
        assert not given
        raise NumericError("far out")

    loaded = object()
    monkeypatch.setattr(in_process.launcher, "load", lambda *_: loaded)
    monkeypatch.setattr(in_process.pack_gate, "check_large", wrong)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: reserved)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: given.append(1))
    answer = in_process.large_gate(
        CompiledKernel(bases.draw(1, 0, "sm90_grouped").fields, b"cubin"), 0, 7
    )
    assert (answer["status"], answer["detail"]) == (Status.NUMERIC.value, "far out")
    assert len(given) == times
