"""Counters by the evaluator: of the built kernel, on its GPU, and one reason where they are not."""

from __future__ import annotations

from typing import Any

import pytest

from hgemm_packs.generator.core.space import Space
from hgemm_packs.generator.core.spec import Choice, CompiledKernel
from hgemm_packs.generator.devices import counters
from hgemm_packs.generator.devices.counters import Counters
from hgemm_packs.generator.devices.sim import SimDevice
from hgemm_packs.generator.evaluator.evaluator import Evaluator
from hgemm_packs.problem import Problem
from tests.generator.evaluator.proposals import PROBLEM


def test_only_a_gpu_has_counters() -> None:
    for device in (None, SimDevice(3)):
        evaluator = Evaluator(device)
        choice = Space(PROBLEM).core[0]
        assert evaluator.no_counters == ""
        assert evaluator.counters(choice, PROBLEM) is None
        assert evaluator.no_counters == "only a GPU has counters"


def test_counters_that_cannot_be_had_are_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The built kernel is what is counted, on the GPU that was named."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    asked: list[Any] = []
    found: list[Counters | str] = [Counters({"us": 2.5}), "no ncu on the PATH"]

    def read(kernel: CompiledKernel, problem: Problem, gpu: str) -> Counters | str:
        asked.append((kernel.fields["family"], kernel.cubin[:4], problem, gpu))
        return found.pop(0)

    monkeypatch.setattr(counters, "read", read)
    choice = next(each for each in Space(PROBLEM).core if each.family == "sm90_direct")
    evaluator = Evaluator(1, alone=True)
    assert evaluator.counters(choice, PROBLEM) == Counters({"us": 2.5})
    assert evaluator.no_counters == ""
    assert evaluator.counters(choice, PROBLEM) is None
    assert evaluator.counters(choice, PROBLEM) is None
    assert evaluator.no_counters == "no ncu on the PATH" and not found
    assert asked == [("sm90_direct", b"\x7fELF", PROBLEM, "7")] * 2


def test_a_kernel_that_does_not_build_has_a_reason_in_place_of_counters() -> None:
    evaluator = Evaluator(0, alone=True)
    assert evaluator.counters(Choice("no_family", {}), PROBLEM) is None
    assert evaluator.no_counters.startswith("KeyError: \"no kernel family 'no_family'")
