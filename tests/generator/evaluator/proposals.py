"""Candidates for the evaluator's tests: from the corpus, from a simulation, and a made
recording."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path

import numpy as np

from hgemm_packs.generator.compile.candidate import DEFAULTS, OPTIONAL, REQUIRED
from hgemm_packs.generator.core.space import Space
from hgemm_packs.generator.core.spec import Choice, DeviceFacts, Status
from hgemm_packs.generator.devices import recording
from hgemm_packs.generator.devices.recording import Screen
from hgemm_packs.generator.devices.replay import ReplayDevice
from hgemm_packs.generator.devices.sim import SimDevice
from hgemm_packs.generator.evaluator.candidate import Candidate
from hgemm_packs.generator.redteam import corpus
from hgemm_packs.problem import Problem

PROBLEM = Problem(64, 512, 512, "nt", "f16")
FACTS = DeviceFacts("NVIDIA H200", "sm_90a", 132, 62914560, peak_tflops=1000.0, peak_gbps=4000.0)


@cache
def choices(count: int = 6) -> tuple[Choice, ...]:
    """Choices that admit PROBLEM."""
    return Space(PROBLEM).core[:count]


def of_choice(choice: Choice) -> Candidate:
    return Candidate.of_genome(choice.family, choice.genome)


def slow_and_fast(device: SimDevice) -> tuple[Candidate, Candidate]:
    """The slowest and the fastest honest choice of PROBLEM on a simulated device."""
    best, _ = device.optimum(PROBLEM)
    worst = max(Space(PROBLEM).core, key=lambda choice: device.true_us(choice, PROBLEM))
    return of_choice(worst), of_choice(best)


def of_case(name: str) -> Candidate:
    """A case of the corpus as somebody outside would hand it in: its source, with those fields of
    its record that a record may say."""
    case = next(each for each in corpus.load() if each.name == name)
    assert case.candidate is not None
    said = {*DEFAULTS, *REQUIRED, *OPTIONAL}
    record = {field: value for field, value in case.candidate.fields.items() if field in said}
    return Candidate.of_source(case.candidate.source, record, name)


def problem_of(candidate: Candidate) -> Problem:
    """A problem of the layout and type that the record of a source says."""
    record = candidate.record
    sizes = 64, 64, 128
    return Problem(*sizes, record["layout"], record["dtype"], epilogue=record["epilogue"])


def recorded() -> tuple[ReplayDevice, tuple[Choice, ...]]:
    """A recording of PROBLEM: torch takes 10 us; the choices 5, 9.99, 20 and no time at all, and of
    the fifth nothing is known."""
    listed = choices()
    us = (5.0, 9.99, 20.0)
    samples = np.array([[each] * 3 for each in us] + [[math.nan] * 3])
    status = (Status.OK, Status.OK, Status.OK, Status.NUMERIC)
    torch_us = (10.0, 10.1) * 4
    screen = Screen(PROBLEM, listed[:4], samples, status, {"torch": torch_us})
    return ReplayDevice({PROBLEM: screen}, FACTS, 0, samples=3), listed


def write_recording(path: Path) -> None:
    """The same as a file, without the choice that has no time."""
    device, listed = recorded()
    screen = device._screens[PROBLEM]
    kind = {("nt", "f16"): listed}
    recording.save(path, [screen], kind)
