"""The run that test_kill kills: two processes measure, every commit is written down.

`python -m tests.generator.run.killed_run FOLDER` goes on with the run in FOLDER and prints a line
for every commit.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from hgemm_packs.generator.core.space import Space
from hgemm_packs.generator.core.spec import Choice, CompiledKernel, Job, Reply, Status, Verdict
from hgemm_packs.generator.run import generate as orchestrate
from hgemm_packs.generator.run.generate import Budget, Snapshot, Summary, generate
from hgemm_packs.generator.search.rivals.exhaustive import Exhaustive
from hgemm_packs.generator.store.run_folder import Store
from hgemm_packs.generator.workers.evaluators import Evaluator, Local
from hgemm_packs.problem import Problem
from tests.generator.fake_device import Make
from tests.generator.store.sample_store import PROBLEMS, choices, kernel

CHOICES = choices(20)
BUDGET = Budget(1000.0, patience=100)


class Acknowledging(Store):
    """Writes a line to `acknowledged` behind every commit of a reply."""

    def add_reply(self, run: str, job: Job, reply: Reply) -> str:
        added = super().add_reply(run, job, reply)
        self.acknowledge.append((added, job))
        return added

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.acknowledge: list[tuple[str, Job]] = []
        self._file = (folder / "acknowledged").open("a")

    def flush(self) -> list[str]:
        """The transactions of the replies so far are committed: write that down. Their kinds."""
        for added, job in self.acknowledge:
            ids = sorted(kernel.id for kernel in job.kernels)
            line = [added, job.kind, str(job.problem), ids, time.monotonic()]
            self._file.write(json.dumps(line) + "\n")
        self._file.flush()
        kinds = [job.kind for _, job in self.acknowledge]
        self.acknowledge.clear()
        return kinds


class Builder:
    """Builds nothing, in threads."""

    workers = 1
    toolchain = {"sources": "1"}  # noqa: RUF012

    def build(self, wanted: Sequence[Choice]) -> dict[Choice, CompiledKernel | Verdict]:
        return {choice: kernel(choice) for choice in wanted}

    def inspect(self, kernels: Sequence[CompiledKernel]) -> dict[str, Verdict]:
        return {one.id: Verdict("binary", Status.OK) for one in kernels}


def spaces(problem: Problem) -> Space:
    return Space(problem, only=CHOICES)


def run(folder: Path, evaluator: Evaluator, out: TextIO | None = None) -> Summary:
    """Go on with the run in `folder` to its end."""
    with Acknowledging(folder) as store:

        def progress(snapshot: Snapshot) -> None:
            for kind in store.flush():
                print(kind, file=out, flush=True) if out else None

        done = generate(
            store,
            PROBLEMS,
            Exhaustive(),
            Builder(),
            evaluator,
            BUDGET,
            progress,
            spaces=spaces,
            seed=5,
        )
        store.flush()
        return done


def workers(folder: Path, sleep_s: float) -> Local:
    (folder / "jobs").mkdir(parents=True, exist_ok=True)
    make = Make(log=folder / "jobs", sleep_s=sleep_s)
    return Local(make, 2, logs=folder / "logs", locks=folder)


def main() -> None:
    folder = Path(sys.argv[1])
    orchestrate._SHOWN_S = 0.0  # every commit is acknowledged at once
    with workers(folder, 0.006) as evaluator:
        run(folder, evaluator, sys.stdout)


if __name__ == "__main__":
    main()
