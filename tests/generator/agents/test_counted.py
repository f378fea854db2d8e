"""Counters of a GPU in the work of agents: what they change of a profile, who is shown them, and
when they are read."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from hgemm_packs.generator.agents import setting
from hgemm_packs.generator.agents.journal import Journal, read
from hgemm_packs.generator.agents.orchestrator import Limits, Orchestrator
from hgemm_packs.generator.agents.roles import profiler
from hgemm_packs.generator.agents.roles.profiler import Profile
from hgemm_packs.generator.agents.roles.reasoner import Reasoner
from hgemm_packs.generator.agents.setting import Setting, solve_problem
from hgemm_packs.generator.core.spec import Choice, DeviceFacts
from hgemm_packs.generator.devices.counters import Counters
from hgemm_packs.generator.devices.sim import SimDevice
from hgemm_packs.generator.evaluator.candidate import Candidate, Source
from hgemm_packs.generator.evaluator.evaluator import Evaluator
from hgemm_packs.problem import Problem

from .grounds import PROBLEM, attempt, ground, orchestrator

DEVICE = DeviceFacts("H", "sm_90a", 132, 1 << 26, peak_tflops=1000.0, peak_gbps=4000.0)


def counted(tensor: float, dram: float) -> Counters:
    numbers = {"us": 9.5, "tensor_percent": tensor, "dram_percent": dram, "bank_conflicts": 0.0}
    return Counters(numbers, (("gmma", 48.0), ("long_scoreboard", 20.5)))


@pytest.mark.parametrize(
    ("tensor", "dram", "estimate", "kind"),
    [
        (80.0, 25.0, "latency", "tensor"),
        (62.0, 75.0, "tensor", "bandwidth"),
        (30.0, 20.0, "tensor", "latency"),
        (30.0, 20.0, "tail wave", "tail wave"),
        (60.0, 60.0, "tail wave", "tensor"),
    ],
)
def test_what_was_counted_replaces_what_was_estimated(
    tensor: float, dram: float, estimate: str, kind: str
) -> None:
    choice = ground().ranked[0]
    measured = attempt(us=200.0, facts={"bottleneck": estimate, "efficiency": 0.25})
    plain = profiler.profile(choice, PROBLEM, DEVICE, measured)
    found = profiler.profile(choice, PROBLEM, DEVICE, measured, None, counted(tensor, dram))
    assert (plain.kind, plain.counters, found.kind) == (estimate, None, kind)
    shares = {"tensor_share": tensor / 100, "memory_share": dram / 100}
    assert found.numbers == {**plain.numbers, **shares} and plain.numbers != found.numbers


def test_half_of_the_counters_leaves_the_estimated_kind() -> None:
    choice = ground().ranked[0]
    measured = attempt(us=200.0, facts={"bottleneck": "bandwidth"})
    half = Counters({"tensor_percent": 90.0})
    found = profiler.profile(choice, PROBLEM, DEVICE, measured, None, half)
    assert (found.kind, found.numbers["tensor_share"]) == ("bandwidth", 0.9)


def test_a_reasoner_is_shown_what_was_counted() -> None:
    asked = Reasoner(ground()).prompt(Profile("tensor", {"us": 4.0}, counted(80.0, 25.0)), 2)
    (part,) = [each for each in asked.parts if each.source == "Nsight Compute"]
    assert part.title == "What the GPU counted in one launch of that kernel, caches cold"
    assert part.text == (
        "us: 9.5\ntensor_percent: 80\ndram_percent: 25\nbank_conflicts: 0\n"
        "warps wait for gmma, %: 48\nwarps wait for long_scoreboard, %: 20.5"
    )
    plain = Reasoner(ground()).prompt(Profile("tensor", {"us": 4.0}), 2)
    assert plain.parts == tuple(each for each in asked.parts if each is not part)


def test_counters_are_read_of_the_best_kernel_alone(tmp_path: Path) -> None:
    """And of none again when a run goes on, for what they said is on file."""
    asked: list[str] = []
    found = Counters({"tensor_percent": 71.25, "dram_percent": 12.5}, (("gmma", 60.0),))

    def count(one: Choice | Source, problem: Problem) -> Counters:
        assert isinstance(one, Choice) and problem == PROBLEM
        asked.append(Candidate.of_genome(one.family, one.genome).key)
        return found

    def run() -> Orchestrator:
        journal = Journal(tmp_path, {"problem": str(PROBLEM)})
        limits = Limits(evaluations=24, patience=1)
        made = orchestrator(journal, limits=limits, here=replace(ground(), counters=count))
        made.run()
        journal.close()
        return made

    first = run()
    keys = {each.key for each in first.tree.attempts if each.correct}
    assert asked and set(asked) <= keys and len(set(asked)) == len(asked)
    pieces = read(tmp_path)[1]
    grown = [p for name, p in pieces.items() if name.startswith("hypotheses")]
    shown = [p for p in grown if "tensor_percent: 71.25" in json.dumps(p["asked"])]
    assert len(shown) >= len(asked)
    before = list(asked)
    assert run().tree.attempts == first.tree.attempts and asked == before


@pytest.mark.parametrize("why", ["no ncu on the PATH", ""])
def test_a_run_on_a_gpu_says_once_why_it_had_no_counters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    class Judge(Evaluator):
        """Judges on a simulation in the place of a GPU."""

        def __init__(self, device: int) -> None:
            super().__init__(SimDevice(3))
            self.no_counters = why

        def counters(self, *_: Any) -> None:
            return None

    monkeypatch.setattr(setting, "open_ground", lambda asked: (0, ground()))
    monkeypatch.setattr(setting, "Evaluator", Judge)
    asked = Setting(PROBLEM, "gpu", tmp_path, tmp_path / "page.html", evaluations=4)
    said, _ = solve_problem(asked, None, Console(quiet=True))
    told = [each for each in said if "counters" in each]
    assert told == ([f"without counters of the GPU: {why}"] if why else [])
