"""A table that a stranger measured on the stand-in, and a GPU here that agrees with it or not."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hgemm_packs.generator.core.spec import DeviceFacts, Job, Reply, Result, Status
from hgemm_packs.problem import Problem
from hgemm_packs.tuning import contribution
from tests import packs
from tests.cpu.tuning import world

#: What the stranger's kernels gain.
SPEEDUPS: Mapping[Problem, Mapping[str, float]] = {
    world.FIRST: {"best": 1.3, "good": 1.2},
    world.SECOND: {"good": 1.1},
    world.THIRD: {"best": 0.9},
}


@dataclass
class Here:
    """The GPU of who merges: `speedups` by problem, of whatever kernel is asked about."""

    speedups: Mapping[Problem, float] = field(
        default_factory=lambda: {p: max(each.values()) for p, each in SPEEDUPS.items()}
    )
    name: str = packs.H200.name
    versions: Mapping[str, str] = field(default_factory=dict)
    status: Status = Status.OK
    asked: list[Problem] = field(default_factory=list)

    @property
    def facts(self) -> DeviceFacts:
        return DeviceFacts(
            self.name, "sm_90a", packs.H200.sm_count, packs.H200.l2_bytes, "u0", self.versions
        )

    def run(self, job: Job) -> Reply:
        assert job.problem is not None and job.kind == "confirm"
        self.asked.append(job.problem)
        us = 10.0 / self.speedups[job.problem]
        times = dict.fromkeys(("hot", "cold"), (us,) * 21)
        results = {kernel.id: Result(self.status, times, "it said") for kernel in job.kernels}
        torch = {"torch": dict.fromkeys(("hot", "cold"), (10.0,) * 21)}
        conditions = {"hot": world.CLOCKS, "cold": world.CLOCKS}
        return Reply(results, torch, {"seed": job.seed, "conditions": conditions})


def contribute(target: Path) -> Path:
    """Tune, and write the file."""
    folder = world.run(world.FakeBench(SPEEDUPS)).folder
    contribution.write_contribution(folder, target)
    return target


def members(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as file:
        return {name: file.read(name) for name in file.namelist()}


def pack_members(found: Mapping[str, bytes], how: int = zipfile.ZIP_DEFLATED) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", how) as file:
        for name, data in found.items():
            file.writestr(name, data)
    return made.getvalue()


def edit_facts(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    """A damage: `change` edits the facts."""

    def damage(path: Path) -> None:
        found = members(path)
        facts = json.loads(found[contribution.FACTS])
        change(facts)
        found[contribution.FACTS] = json.dumps(facts).encode()
        path.write_bytes(pack_members(found))

    return damage


def edit_job(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    """A damage: `change` edits the first job."""

    def damage(path: Path) -> None:
        found = members(path)
        first, *rest = found[contribution.JOBS].splitlines()
        job = json.loads(first)
        change(job)
        found[contribution.JOBS] = b"\n".join([json.dumps(job).encode(), *rest, b""])
        path.write_bytes(pack_members(found))

    return damage
