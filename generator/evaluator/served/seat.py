"""One device of the service: its process, ended and started anew, and the job that it has.

Called by the service: `ensure`, `drop` and the fields by the device's own thread, `kill` by any.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from hgemm_packs.generator.evaluator.served.process import CannotStart, Process

log = logging.getLogger("hgemm_packs.evaluator")


@dataclass(slots=True)
class Seat:
    """`device` as `places.open_device` takes it; `job` is the number of the job that it has;
    `problem` says why there is no process."""

    device: str
    log: Path
    process: Process | None = None
    job: str = ""
    problem: str = ""

    def ensure(self) -> Process | None:
        """The process, a new one where the last is gone; None where none starts."""
        if self.process is not None and not self.process.alive:
            self.drop()
        if self.process is None:
            try:
                self.process, self.problem = Process(self.device, self.log), ""
            except (OSError, CannotStart) as error:
                self.problem = str(error)
                log.error("no process: %s", error)
        return self.process

    def drop(self) -> None:
        """End the process and let go of it."""
        process, self.process = self.process, None
        if process is not None:
            process.close()

    def kill(self) -> None:
        """End the process, in the midst of a job as well."""
        process = self.process  # another thread may let go of it
        if process is not None:
            process.kill()

    @property
    def pid(self) -> int | None:
        process = self.process
        return process.pid if process is not None else None

    @property
    def state(self) -> str:
        """It is "running", "idle", "down" or "starting"."""
        if self.job:
            return "running"
        return "idle" if self.process is not None else "down" if self.problem else "starting"
