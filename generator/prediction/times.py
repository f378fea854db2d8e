"""Times that models are fitted to: of kernels and of torch on one problem, from whatever has them.

Lines of `generate measure unseen`, exports of finals, and recorded screens. A kernel is known by
its launch record and genome, for the model sees nothing else of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

from hgemm_packs.generator.compile.candidate import described
from hgemm_packs.generator.compile.pack_kernels import parse
from hgemm_packs.generator.core.spec import FALLBACK, Choice
from hgemm_packs.generator.devices import recording
from hgemm_packs.generator.families import FAMILIES, family
from hgemm_packs.generator.families.base import InvalidGenome
from hgemm_packs.generator.store import export
from hgemm_packs.generator.store.findings import CORRECT
from hgemm_packs.generator.store.lines import read_records
from hgemm_packs.pack.features import numbers_of
from hgemm_packs.pack.manifest import DimRange
from hgemm_packs.pack.predictor import Candidate, Dims
from hgemm_packs.problem import ALIGNED, Problem

#: Recorded screens have hundreds of kernels a problem. Of those within WITHIN of the best all are
#: taken, of the others each OTHERS-th.
WITHIN, OTHERS = 1.5, 20
#: The set of the judging lines whose weights are for judging alone: what is said of weights that no
#: training saw stays true.
JUDGING = "layers_new"
#: By how much torch's samples on one problem may differ: beyond, the GPU was not itself, and all
#: times of the line are left out.
UNSTEADY = 1.4


@dataclass
class Times:
    """Microseconds a call on one problem: torch's, and those of kernels by name."""

    torch: float = 0.0
    kernels: dict[str, float] = field(default_factory=dict)


@dataclass
class Measured:
    """Times by problem, and the kernels that they are of, by name, as candidates."""

    families: tuple[str, ...] = tuple(FAMILIES)
    times: dict[Problem, Times] = field(default_factory=dict)
    kernels: dict[str, Candidate] = field(default_factory=dict)

    def add(self, problem: Problem, torch: float, kernels: Mapping[str, float]) -> None:
        """Take the times of a measurement; a later one of the same arm counts."""
        known = self.times.setdefault(problem, Times())
        known.torch = torch
        known.kernels |= kernels

    def know(self, name: str, fields: Mapping[str, Any]) -> None:
        """Take a kernel by its manifest fields."""
        if name not in self.kernels:
            self.kernels[name] = candidate_of(fields, self.families)

    def complete(self) -> dict[Problem, Times]:
        """Problems with a time of torch and of a kernel."""
        return {p: each for p, each in self.times.items() if each.torch and each.kernels}

    def alone(self) -> dict[Problem, float]:
        """torch's time on problems that no kernel was timed on."""
        return {p: each.torch for p, each in self.times.items() if each.torch and not each.kernels}


def candidate_of(fields: Mapping[str, Any], families: tuple[str, ...]) -> Candidate:
    """A kernel as a pack's candidate, by its manifest fields."""
    dims = Dims(*(DimRange(**fields["dims"][name]) for name in "mnk"))
    numbers = numbers_of(described(fields), families)
    return Candidate(str(fields.get("id", "")), fields["layout"], fields["dtype"], dims, numbers)


def read_lines(measured: Measured, paths: Iterable[Path], known: Mapping[str, Candidate]) -> None:
    """Lines of `generate measure unseen`, and of runs that judged earlier predictors: of kernels
    that are `known` by name."""
    for line in read_records(paths):
        if "us" not in line or "problem" not in line or line.get("set") == JUDGING:
            continue
        if max(line["us"][FALLBACK]) > UNSTEADY * min(line["us"][FALLBACK]):
            continue
        us = {name: median(each) for name, each in line["us"].items()}
        kernels = {name: us[name] for name in us if name in known}
        measured.kernels |= {name: known[name] for name in kernels}
        measured.add(parse(line["problem"])[0], us[FALLBACK], kernels)


def read_export(measured: Measured, place: Path) -> None:
    """Hot times of every final and confirmation of plain products, one at a time, of packed
    operands at aligned addresses: models see no other."""
    found = export.load(place)
    for job in found.fields:
        hot = job.samples.get("hot", {})
        one = job.problem
        plain = one.epilogue == "none" and one.batches == 1 and one.packed and one.base == ALIGNED
        if not plain or not hot.get(FALLBACK):
            continue
        kernels = {}
        for id_, status in job.statuses.items():
            fields = found.kernels.get(id_)
            if status in CORRECT and hot.get(id_) and fields and fields["family"] in FAMILIES:
                measured.know(fields["name"], fields)
                kernels[fields["name"]] = median(hot[id_])
        measured.add(job.problem, median(hot[FALLBACK]), kernels)


@cache
def _fields_of(choice: Choice) -> Mapping[str, Any] | None:
    try:
        return family(choice.family).fields(choice.genome)
    except (InvalidGenome, KeyError):
        return None  # no kernel of today


def read_recording(measured: Measured, path: Path) -> None:
    """Recorded screens that timed torch, too."""
    for screen in recording.load(path, any_catalogue=True).values():
        if FALLBACK not in screen.baselines:
            continue
        best = screen.optimum()[1]
        kernels = {}
        for row, (choice, us) in enumerate(zip(screen.choices, screen.us.tolist(), strict=True)):
            if us > WITHIN * best and (row % OTHERS or us > 20 * best):
                continue
            fields = _fields_of(choice)
            if fields is not None:
                measured.know(fields["name"], fields)
                kernels[fields["name"]] = us
        measured.add(screen.problem, median(screen.baselines[FALLBACK]), kernels)
