"""What a store has on record, as the words of `spec`: the reading half of `store.Store`.

Called by the orchestrator to go on where a run stopped, and by table and report, which may read
while a run writes. Nothing here changes the store, and nothing derived is kept in it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from hgemm_packs.generator.core.spec import (
    Choice,
    DeviceFacts,
    Outcome,
    Proposal,
    Reply,
    Result,
    Status,
    Verdict,
    same,
)
from hgemm_packs.generator.store.blobs import Blobs
from hgemm_packs.generator.store.schema import PASSED, canonical
from hgemm_packs.problem import Problem

_PROBLEM = "m, n, k, layout, dtype, out_dtype, acc, epilogue, align, packed"
_ORDER = list(Status)


@dataclass(frozen=True, slots=True)
class Finished:
    """A job that was done: what was asked (kernels by id), the answer, and when (Unix time)."""

    id: str
    run: str
    kind: str
    problem: Problem | None
    kernels: tuple[str, ...]
    seed: int
    finished: float
    reply: Reply


def screened_us(result: Result) -> float:
    """The time that a strategy is told: median of the hot samples; infinite for a failure."""
    hot = result.samples.get("hot")
    return median(hot) if hot and result.status is Status.OK else math.inf


def samples_of(text: str) -> dict[str, tuple[float, ...]]:
    return {protocol: tuple(values) for protocol, values in json.loads(text).items()}


class StoreReader(Blobs):
    """Reads; `Store` opens the database and adds the writing."""

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """All that is read inside is of one moment, whatever a run commits meanwhile. Nests, also
        in a transaction."""
        if self.db.in_transaction:
            yield
            return
        self.db.execute("BEGIN")
        try:
            yield
        finally:
            if self.db.in_transaction:  # an error of the file has ended it already
                self.db.execute("ROLLBACK")

    def problems(self) -> list[Problem]:
        """Every problem on record, in the order in which they came."""
        rows = self.db.execute(f"SELECT {_PROBLEM} FROM problem ORDER BY rowid")
        return [_problem(row) for row in rows]

    def devices(self) -> list[DeviceFacts]:
        """Every GPU that answered, with the highest ceilings measured on one of its name."""
        peaks: dict[str, dict[str, float]] = {}
        for done in self.finished_jobs("ceilings"):
            if done.reply.device is not None:
                known = peaks.setdefault(done.reply.device.name, {})
                for name in ("peak_tflops", "peak_gbps"):
                    known[name] = max(known.get(name, 0.0), done.reply.evidence.get(name, 0.0))
        rows = self.db.execute("SELECT facts FROM device ORDER BY rowid")
        found = [DeviceFacts(**json.loads(facts)) for (facts,) in rows]
        return [
            replace(
                facts,
                peak_tflops=peaks.get(facts.name, {}).get("peak_tflops", 0.0),
                peak_gbps=peaks.get(facts.name, {}).get("peak_gbps", 0.0),
            )
            for facts in found
        ]

    def runs(self) -> list[dict[str, Any]]:
        """Every call of the generator: id, start (Unix time) and configuration, oldest first."""
        rows = self.db.execute("SELECT id, started, config FROM run ORDER BY started, id")
        return [{"id": id_, "started": at, **json.loads(config)} for id_, at, config in rows]

    def spent_gpu_seconds(self) -> dict[str, float]:
        """By kind of job; the sum is what counts against a budget."""
        return dict(self.db.execute("SELECT kind, sum(gpu_seconds) FROM job GROUP BY kind"))

    def alike(self, device: DeviceFacts) -> set[str | None]:
        """Ids of the GPUs whose figures may stand beside those of `device`, and None: a job that
        lost its device has none on record, and its cost and failures count, whoever it was."""
        rows = self.db.execute("SELECT id, facts FROM device")
        return {None, *(i for i, text in rows if same(DeviceFacts(**json.loads(text)), device))}

    def outcomes(self, problem: Problem, toolchain: str, device: DeviceFacts) -> list[Outcome]:
        """What became of every choice proposed for `problem`, in the order of asking, to tell a
        strategy again. Choices without an answer under this toolchain, and under the conditions of
        `device` where they were measured, are left out."""
        refused, screens = self.refused_kernels(), self._screens(problem, device)
        found: dict[str, Outcome] = {}
        rows = self.db.execute(_OUTCOMES, {"problem": problem_id(problem), "toolchain": toolchain})
        for key, family, genome, proposer, operator, parents, status, kernel, facts in rows:
            if key in found:
                continue
            choice = Choice.of(family, json.loads(genome))
            proposal = Proposal(choice, proposer, operator, tuple(json.loads(parents)))
            told = Outcome(proposal, Status(status), math.inf, json.loads(facts))
            if kernel in refused:
                found[key] = replace(told, status=refused[kernel])
            elif kernel in screens:
                us = screened_us(screens[kernel])
                found[key] = replace(told, status=screens[kernel].status, us=us)
            elif kernel is None:
                found[key] = replace(told, facts={})
        return list(found.values())

    def _screens(self, problem: Problem, device: DeviceFacts) -> dict[str, Result]:
        """All screens of each kernel on a problem as one; a failure outweighs successes."""
        found: dict[str, Result] = {}
        here = self.alike(device)
        for kernel, text, samples, who in self.db.execute(
            "SELECT kernel, status, samples, device FROM job JOIN measurement ON job = id"
            " WHERE kind = 'screen' AND problem = ? ORDER BY finished, id",
            (problem_id(problem),),
        ):
            if who not in here:
                continue
            new = Result(Status(text), samples_of(samples))
            old = found.get(kernel, new)
            if old is not new:
                pooled = {p: old.samples.get(p, ()) + new.samples[p] for p in new.samples}
                worse = old.status if old.status is not Status.OK else new.status
                new = Result(worse, {**old.samples, **pooled})
            found[kernel] = new
        return found

    def torch_us(self, device: DeviceFacts) -> dict[Problem, float]:
        """Shortest median of torch, hot, that any screen of a problem has seen under the conditions
        of `device`."""
        rows = self.db.execute(
            f"SELECT samples, device, {_PROBLEM} FROM baseline JOIN job ON job.id = job"
            " JOIN problem ON problem.id = problem WHERE kind = 'screen' AND arm = 'torch'"
        )
        found: dict[Problem, float] = {}
        here = self.alike(device)
        for text, who, *row in rows:
            if who not in here:
                continue
            us = median(samples_of(text).get("hot") or (math.inf,))
            found[_problem(row)] = min(us, found.get(_problem(row), math.inf))
        return found

    def finished_jobs(
        self,
        kind: str | None = None,
        problem: Problem | None = None,
        kernels: Sequence[str] | None = None,
    ) -> Iterator[Finished]:
        """Finished jobs in order of their end: of one kind, of one problem, of exactly the kernels
        with these ids, where given."""
        query = "SELECT * FROM job WHERE true"
        values: list[str] = []
        if kind is not None:
            query, values = query + " AND kind = ?", [*values, kind]
        if problem is not None:
            query, values = query + " AND problem = ?", [*values, problem_id(problem)]
        if kernels is not None:
            query, values = query + " AND kernels = ?", [*values, canonical(sorted(kernels))]
        for row in self.db.execute(query + " ORDER BY finished, id", values).fetchall():
            yield self._make_finished(*row)

    def _make_finished(
        self,
        id_: str,
        run: str,
        kind: str,
        problem: str | None,
        kernels: str,
        seed: int,
        device: str | None,
        gpu_seconds: float,
        finished: float,
        evidence: str,
    ) -> Finished:
        table = "gate" if kind == "gate" else "measurement"
        samples = "'{}'" if kind == "gate" else "samples"
        results = {
            kernel: Result(Status(status), samples_of(text), detail, json.loads(seen))
            for kernel, status, text, detail, seen in self.db.execute(
                f"SELECT kernel, status, {samples}, detail, evidence FROM {table} WHERE job = ?",
                (id_,),
            )
        }
        arms = self.db.execute("SELECT arm, samples FROM baseline WHERE job = ?", (id_,))
        baselines = {arm: samples_of(text) for arm, text in arms}
        facts = self._one("SELECT facts FROM device WHERE id = ?", device)
        who = DeviceFacts(**json.loads(facts)) if facts else None
        reply = Reply(results, baselines, json.loads(evidence), gpu_seconds, who)
        row = self.db.execute(f"SELECT {_PROBLEM} FROM problem WHERE id = ?", (problem,)).fetchone()
        named = _problem(row) if row else None
        return Finished(id_, run, kind, named, tuple(json.loads(kernels)), seed, finished, reply)

    def choices(self, kind: str, problem: Problem, toolchain: str) -> list[Choice]:
        """What jobs of one kind measured for a problem, of what this toolchain built."""
        rows = self.db.execute(
            "SELECT DISTINCT family, genome FROM job JOIN measurement ON measurement.job = job.id"
            " JOIN build ON build.kernel = measurement.kernel"
            " JOIN candidate ON candidate.id = build.candidate"
            " WHERE kind = ? AND problem = ? AND toolchain = ? ORDER BY candidate.id",
            (kind, problem_id(problem), toolchain),
        )
        return [Choice.of(family, json.loads(genome)) for family, genome in rows]

    def refused_kernels(self) -> dict[str, Status]:
        """Kernels that are never run again, by id, with how far they got: whatever was wrong once,
        and whatever could not be launched on two problems, or came to no end there. Want of memory
        is the problem's fault however often."""
        found: dict[str, Status] = {}
        for kernel, text in self.db.execute(_REFUSED):
            found[kernel] = max(found.get(kernel, Status.OK), Status(text), key=_ORDER.index)
        return found

    def last_builds(self) -> set[str]:
        """Ids of the kernels that choices were built to last: a compiler may have changed."""
        rows = self.db.execute("SELECT candidate, kernel FROM build ORDER BY rowid")
        return {kernel for kernel in dict(rows).values() if kernel is not None}

    def verdicts(self, gate: str) -> dict[str, Verdict]:
        """What a gate said of each kernel, by id; of several verdicts a refusal counts."""
        rows = self.db.execute(
            "SELECT kernel, status, detail, evidence FROM gate WHERE gate = ?"
            " ORDER BY status != 'OK', rowid",
            (gate,),
        )
        return {
            kernel: Verdict(gate, Status(status), detail, json.loads(evidence))
            for kernel, status, detail, evidence in rows
        }

    def quarantine_records(self) -> list[tuple[str, Problem | None, Verdict]]:
        """(kernel id, problem, why) of everything that was faster than it could be."""
        rows = self.db.execute(
            f"SELECT kernel, gate, detail, evidence, {_PROBLEM} FROM quarantine"
            " LEFT JOIN problem ON problem.id = problem ORDER BY quarantine.rowid"
        )
        return [
            (
                kernel,
                _problem(rest) if rest[0] is not None else None,
                Verdict(gate, Status.HACK, detail, json.loads(evidence)),
            )
            for kernel, gate, detail, evidence, *rest in rows
        ]

    def _one(self, query: str, *values: Any) -> Any:
        row = self.db.execute(query, values).fetchone()
        return row[0] if row else None


def problem_row(problem: Problem) -> dict[str, Any]:
    """The columns of a problem. `align` is its base: one number for all operands, or the three in
    two digits each."""
    found = {name.strip(): getattr(problem, name.strip()) for name in _PROBLEM.split(",")}
    a, b, c = problem.base
    return found | {"align": a if a == b == c else (a * 100 + b) * 100 + c}


def problem_id(problem: Problem) -> str:
    """What the store files a problem under: readable, and nothing but its columns."""
    return " ".join(
        str(int(v) if isinstance(v, bool) else v) for v in problem_row(problem).values()
    )


def _problem(row: Sequence[Any]) -> Problem:
    m, n, k, layout, dtype, out_dtype, acc, epilogue, align, packed = row
    base = (align // 10000, align // 100 % 100, align % 100) if align > 16 else (align,) * 3
    return Problem(m, n, k, layout, dtype, out_dtype, acc, epilogue, base, bool(packed))


_OUTCOMES = """
SELECT c.id, c.family, c.genome, p.proposer, p.operator, p.parents, b.status, b.kernel, b.facts
FROM proposal p JOIN candidate c ON c.id = p.candidate
JOIN build b ON b.candidate = c.id AND b.toolchain = :toolchain
WHERE p.problem = :problem ORDER BY p.rowid, b.status != 'OK', b.id
"""
_REFUSED = f"""
SELECT kernel, status FROM measurement
WHERE status NOT IN {PASSED} AND status NOT IN ('LAUNCH', 'TIMEOUT')
UNION
SELECT kernel, status FROM measurement JOIN job ON id = job
WHERE status NOT IN {PASSED} AND status IN ('LAUNCH', 'TIMEOUT')
AND detail NOT LIKE '%OutOfMemoryError:%'
GROUP BY kernel HAVING count(DISTINCT problem) > 1
UNION SELECT kernel, status FROM gate WHERE status NOT IN {PASSED}
UNION SELECT kernel, 'HACK' FROM quarantine
"""
