"""One tuning of a GPU model: what is measured, in which order, for how long; what follows.

Called by `tune` with a bench, and holds the folder's lock from first to last. Every job is on file
before the next begins, and the table follows from the file: whoever kills this loses the problem
that is being measured. Stale rows come first, then problems without a row, those first on which
the program spends most time.
"""

from __future__ import annotations

import datetime
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch

from .. import profiles
from ..errors import PackError
from ..measure.evidence import ratio
from ..pack.cache_folders import Lock, hold_lock, make_private
from ..pack.folder import Pack
from ..pack.local import place
from ..pack.local.conditions import here
from ..pack.manifest import Row
from ..problem import DeviceInfo, Problem, set_bytes
from ..settings import LOGGER
from . import table
from .bench import Bench, Compared
from .candidates import Candidate, Candidates
from .journal import AGAIN, TORCH, Journal, Measured, Run, Source
from .judge import PROTOCOLS, Judge, Standing, best_of, gain

#: Kernels that are timed against torch, hot and cold, of all that were screened.
FINALISTS = 6
#: Seconds of a problem beside its screens, and of one whose screens are cut short.
FINALS_S, LEAST_S = 0.6, 0.3
#: Where the best kernel is behind torch by more, hot, finals of one say what the row needs.
HOPELESS = 1.15
#: The table is written when this many times what the last writing took has gone by.
WRITES = 20
#: For the order of problems alone: what a product takes on a large GPU.
_FLOP_PER_US, _BYTES_PER_US, _LEAST_US = 5e8, 3e6, 2.0


class Gain(NamedTuple):
    """What was found of a problem: its row, and the kernel's name, None where torch stays. `weight`
    is how often the program calls it."""

    problem: Problem
    row: Row
    kernel: str | None
    weight: float


class Outcome(NamedTuple):
    """What a tuning did: problems measured now, those that it had no time for, and those that are
    not measured, with the reason."""

    gains: tuple[Gain, ...]
    left: tuple[Problem, ...]
    unfit: Mapping[Problem, str]
    known: int


#: Told of the problems done, of how many there are, and what was found last.
Show = Callable[[int, int, "Gain | None"], None]


@contextmanager
def hold(root: Path, folder: Path) -> Iterator[None]:
    """Hold the lock of a table; two that tune one GPU model take turns. Raises OSError."""
    base = root / "v1"
    make_private(base / "locks")
    name = f"local-{folder.name}"
    with hold_lock(base, name, wait=False) as lock:
        if lock is not Lock.BUSY:
            yield
            return
    LOGGER.warning("another process tunes the same GPU model: waiting for it")
    with hold_lock(base, name):
        yield


class Session:
    """A tuning of `device`, whose lock is held, with the kernels of `packs`."""

    def __init__(
        self, folder: Path, device: DeviceInfo, packs: Sequence[Pack], bench: Bench, seconds: float
    ) -> None:
        self._ends = time.monotonic() + seconds
        self._folder, self._device, self._bench = folder, device, bench
        self._official = [*profiles.find_measured(packs, device)]
        self._candidates = Candidates(packs)
        table_before = _open_whole(folder)
        self._kept = Candidates([table_before] if table_before else []).by_id
        self._floor = max(pack.manifest.policy.noise_floor for pack in packs)
        self._first = packs[0].manifest
        self._journal = Journal(folder)
        self._written_at, self._took_s = -math.inf, 0.0
        infos = [(pack.manifest.pack, pack.manifest_sha256) for pack in packs]
        sources = tuple(Source(info.name, info.version, sha256) for info, sha256 in infos)
        self._run = Run(
            device.name,
            device.arch,
            device.sm_count,
            device.l2_bytes,
            round(bench.gbps(), 1),
            here(),
            sources,
            device.theoretical_mem_bw_gbps,
            profiles.power_limit_w(device),
        )
        self._judge = Judge(self._run, self._floor, self._journal.jobs)
        self._is_written = table_before is not None and self._says(table_before)

    def close(self) -> None:
        """Write the table of all that is on file, if it is another. Raises PackError, OSError."""
        try:
            if not self._is_written:
                self._write_table()
        finally:
            self._journal.close()

    def run(self, wanted: Mapping[Problem, float], again: bool, show: Show) -> Outcome:
        """Measure, until the time is over, what of `wanted` has no row yet, with `again` all of it;
        before that what is stale."""
        judged = self._judge.judged()
        stale = [p for p in judged.stale if self._find(best_of(judged.stale[p])) is not None]
        todo, unfit = self._plan(wanted, again, judged.standing)
        todo = [problem for problem in todo if problem not in stale]
        order = sorted(stale, key=lambda p: -_cost(p, wanted)) + todo
        measured: list[Problem] = []
        show(0, len(order), None)
        for done, problem in enumerate(order):
            if time.monotonic() >= self._ends:
                break
            try:
                if problem in stale:
                    self._validate(problem, judged.stale[problem])
                else:
                    self._measure(problem, len(order) - done)
            except torch.OutOfMemoryError:
                unfit[problem] = "the GPU has too little memory for it"
            measured.append(problem)
            show(done + 1, len(order), self._gain(problem, wanted))
            self._write_if_due()
        gains = {p: found for p in measured if (found := self._gain(p, wanted)) is not None}
        for problem in measured:
            if problem not in gains:
                unfit.setdefault(problem, "no kernel computes it here")
        left = tuple(order[len(measured) :])
        known = len(wanted.keys() - {*order} - unfit.keys())
        return Outcome(tuple(gains.values()), left, unfit, known)

    def _plan(
        self, wanted: Mapping[Problem, float], again: bool, standing: Mapping[Problem, Standing]
    ) -> tuple[list[Problem], dict[Problem, str]]:
        """What to choose kernels for: what has no row, then what was chosen among the kernels of
        other packs; and why of the rest nothing can be measured."""
        fresh, dated, unfit = [], [], {}
        for problem in sorted(wanted, key=lambda p: -_cost(p, wanted)):
            known = standing.get(problem)
            if problem.batches > 1:
                unfit[problem] = "batches are not measured here"
            elif not self._candidates.takes(problem):
                unfit[problem] = "no kernel of the packs takes it"
            elif again or (known is None and not self._has_row(problem)) or self._is_lost(known):
                fresh.append(problem)
            elif known is not None and known.packs != self._run.packs:
                dated.append(problem)
        return [*fresh, *dated], unfit

    def _is_lost(self, known: Standing | None) -> bool:
        """Whether the kernel of a row is nowhere any more."""
        return known is not None and bool(known.row.kernel) and self._find(known.best) is None

    def _has_row(self, problem: Problem) -> bool:
        """Whether a pack was measured on this GPU model with the problem."""
        return any(
            manifest.row(profile.name, problem.key) is not None
            for manifest, profile in self._official
        )

    def _validate(self, problem: Problem, stale: Measured) -> None:
        """Measure the kernel of a stale row once more under the conditions of now."""
        found = self._find(best_of(stale))
        if found is not None:
            self._confirm(problem, found, self._run._replace(packs=stale.run.packs))

    def _measure(self, problem: Problem, left: int) -> None:
        """Choose a kernel for a problem, of `left` that are to share what time there is."""
        ranked = self._candidates.rank(problem)
        known = self._judge.standing(problem)
        own = self._kept.get(known.best) if known is not None else None
        if own is not None and known is not None and known.best not in self._candidates.by_id:
            ranked.insert(0, own)  # of a pack that is gone
        share = (self._ends - time.monotonic()) / left
        until = time.monotonic() + max(LEAST_S, share - FINALS_S)
        screened = self._bench.screen(problem, ranked, until)
        times = screened.times
        best = sorted(
            (each for each in ranked if each.entry.id in times),
            key=lambda each: times[each.entry.id],
        )
        hopeless = bool(best) and times[best[0].entry.id] > HOPELESS * screened.torch_us
        chosen = best[: 1 if hopeless else FINALISTS]
        seed = self._seed()
        done = self._bench.finals(problem, chosen, seed) if chosen else None
        if done is None:
            return
        finals = _job(self._run, problem, "finals", done, seed)
        self._keep(finals)
        front = best_of(finals)
        if gain(finals.samples, front) > 1.0:
            leader = next(each for each in chosen if each.entry.id == front)
            self._confirm(problem, leader, self._run)

    def _confirm(self, problem: Problem, candidate: Candidate, run: Run) -> None:
        """Time one kernel, and torch against itself beside it. The trial of torch is on file first:
        a confirmation is the last word on a problem."""
        seed = self._seed()
        done = self._bench.confirm(problem, candidate, seed)
        if done is not None:
            for stage in ("noise", "confirm"):
                self._keep(_job(run, problem, stage, done, seed))

    def _seed(self) -> int:
        return len(self._journal.jobs) + 1

    def _keep(self, job: Measured) -> None:
        self._is_written = False
        self._journal.add(job)
        self._judge.add(job)

    def _gain(self, problem: Problem, wanted: Mapping[Problem, float]) -> Gain | None:
        standing = self._judge.standing(problem)
        if standing is None:
            return None
        found = self._find(standing.row.kernel) if standing.row.kernel else None
        name = found.entry.name if found else None
        return Gain(problem, standing.row, name, wanted.get(problem, 1.0))

    def _find(self, kernel: str) -> Candidate | None:
        """A kernel of the packs, or one that the table has kept."""
        return self._candidates.by_id.get(kernel) or self._kept.get(kernel)

    def _write_if_due(self) -> None:
        if time.monotonic() - self._written_at >= WRITES * self._took_s:
            self._write_table()

    def _write_table(self) -> None:
        began = time.monotonic()
        judged = self._judge.judged()
        named = [standing.row.kernel for standing in judged.standing.values()]
        named += [best_of(job) for job in judged.stale.values()]
        kernels = [found for id_ in named if id_ and (found := self._find(id_)) is not None]
        if judged.standing:
            table.write(self._folder, self._run, judged, kernels, self._first)
        self._written_at, self._took_s = time.monotonic(), time.monotonic() - began
        self._is_written = True

    def _says(self, pack: Pack) -> bool:
        """Whether a table has the rows of all that is on file, under the conditions of now."""
        pointer = place.read_pointer(self._folder)
        rows = {each.row for each in self._judge.judged().standing.values()}
        return pointer.conditions == self._run.conditions and rows == {*pack.manifest.table}


def _open_whole(folder: Path) -> Pack | None:
    """The table that is there, whether it holds or not, if it is not damaged."""
    try:
        pack = place.open_whole(folder, place.read_pointer(folder))
        pack.verify()
    except PackError as error:
        if error.code != "missing_file":
            LOGGER.warning("%s: the table is damaged, and is made again: %s", folder, error)
        return None
    return pack


def _cost(problem: Problem, wanted: Mapping[Problem, float]) -> float:
    """What the program spends on a problem, roughly."""
    flop = 2 * problem.m * problem.n * problem.k
    us = max(flop / _FLOP_PER_US, set_bytes(problem) / _BYTES_PER_US, _LEAST_US)
    return wanted.get(problem, 1.0) * us


def _job(run: Run, problem: Problem, stage: str, done: Compared, seed: int) -> Measured:
    """A job of what a bench has measured: of a trial torch's arms alone, else all but the second
    of these."""
    apart = stage == "noise"
    samples = {
        protocol: {arm: us for arm, us in arms.items() if arm == TORCH or (arm == AGAIN) == apart}
        for protocol, arms in done.samples.items()
    }
    now = datetime.datetime.now(datetime.timezone.utc)
    evidence = {"seed": seed, "finished": round(now.timestamp(), 3)}
    said: dict[str, Any] = {**evidence, "conditions": done.conditions}
    if apart:
        for protocol in PROTOCOLS:
            found = ratio(samples[protocol][TORCH], samples[protocol][AGAIN], seed=seed)
            said[protocol] = [found.value, found.lcb, found.ucb]
    return Measured(run, problem, stage, now.date().isoformat(), samples, said)
