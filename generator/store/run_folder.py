"""One run folder: `store.sqlite` with everything that was tried and measured, `blobs/` with cubins.

The orchestrator writes it, one process at a time; table, report and CLI read it, also meanwhile.
Rows are only ever added and say nothing that a later row could make untrue, so the union of two
stores is a store: see `merge`. Raw samples are JSON in the rows, for any SQLite tool to read.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from hgemm_packs.generator.compile.cache import write_atomically
from hgemm_packs.generator.core.spec import (
    Choice,
    CompiledKernel,
    DeviceFacts,
    Job,
    Proposal,
    Reply,
    Status,
    Verdict,
    known_facts,
)
from hgemm_packs.generator.store.filelock import FileLock, LockHeld
from hgemm_packs.generator.store.reader import (
    Finished,
    StoreReader,
    problem_id,
    problem_row,
    screened_us,
)
from hgemm_packs.generator.store.schema import (
    TABLES,
    StoreError,
    canonical,
    connect,
    digest,
    insert,
)
from hgemm_packs.problem import Problem

__all__ = ["Finished", "Store", "StoreError", "merge", "screened_us"]


class Store(StoreReader):
    """A run folder, open. Use from one thread, except `put_blob`.

    For writing it is made when absent and locked against other writers. Raises StoreError for a
    file of something else, of another version, damaged, or in use.
    """

    def __init__(self, folder: Path, *, readonly: bool = False) -> None:
        self.folder = folder
        self._there: set[str] = set()  # ids of shared rows that need no second look
        self._lock: FileLock | None = None
        if not readonly:
            try:
                self._lock = FileLock(folder / "lock", wait_s=0.5)
            except LockHeld as error:
                raise StoreError(f"another process writes to {folder}: {error}") from error
        try:
            self.db = connect(folder / "store.sqlite", readonly=readonly)
        except BaseException:
            self._unlock()
            raise

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the database; its log is folded into the one file."""
        self.db.close()
        self._unlock()

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All that is added inside becomes durable together, or not at all. Nests."""
        if self.db.in_transaction:
            yield
            return
        self.db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.db.execute("COMMIT")
        except BaseException:
            if self.db.in_transaction:  # on a full disk SQLite has rolled back already
                self.db.execute("ROLLBACK")
            self._there.clear()
            raise

    def add_run(self, config: Mapping[str, Any]) -> str:
        """Record that the generator was called, with plain data; returns the run's id."""
        row = {"started": time.time(), "config": canonical(dict(config))}
        return self._add("run", row)

    def add_problem(self, problem: Problem) -> str:
        """Make sure that a problem is on record; returns its id."""
        id_ = problem_id(problem)
        if id_ not in self._there:
            insert(self.db, "problem", {"id": id_, **problem_row(problem)})
            self._there.add(id_)
        return id_

    def add_device(self, facts: DeviceFacts) -> str:
        """Record a GPU. Its ceilings are a measurement, not a part of what it is."""
        facts = replace(facts, peak_tflops=0.0, peak_gbps=0.0)
        return self._add("device", {"facts": canonical(known_facts(facts))})

    def add_toolchain(self, facts: Mapping[str, Any]) -> str:
        """All that decides what a choice compiles to: versions, flags, a hash of the sources."""
        return self._add("toolchain", {"facts": canonical(dict(facts))})

    def add_candidate(self, run: str, problem: Problem, proposal: Proposal) -> None:
        """Record who proposed a choice for a problem, and from what."""
        key = self._candidate(proposal.choice)
        row = {
            "run": run,
            "problem": self.add_problem(problem),
            "candidate": key,
            "proposer": proposal.proposer,
            "operator": proposal.operator,
            "parents": canonical(proposal.parents),
        }
        self._add("proposal", row)

    def _candidate(self, choice: Choice) -> str:
        key = choice.key
        if key not in self._there:
            row = {"id": key, "family": choice.family, "genome": canonical(choice.genome)}
            insert(self.db, "candidate", row)
            self._there.add(key)
        return key

    def add_build(self, choice: Choice, toolchain: str, built: CompiledKernel | Verdict) -> None:
        """Record what a choice compiled to, with the proof that came with it, or the verdict that
        refused it. The cubin is on disk before the row is."""
        row = {"candidate": self._candidate(choice), "toolchain": toolchain}
        if isinstance(built, CompiledKernel):
            found: dict[str, Any] = {
                **{"status": Status.OK.value, "gate": "", "detail": "", "kernel": built.id},
                "cubin": self.put_blob(built.cubin),
                "fields": canonical(dict(built.fields)),
                "facts": canonical(dict(built.facts)),
            }
        else:
            found = {
                **{"status": built.status.value, "gate": built.gate, "detail": built.detail},
                **{"kernel": None, "cubin": None, "fields": "{}"},
                "facts": canonical(dict(built.evidence)),
            }
        self._add("build", {**row, **found})
        if isinstance(built, CompiledKernel) and built.proof is not None:
            self.add_verdict(built.id, built.proof)

    def put_blob(self, data: bytes) -> str:
        """Keep content under its digest, whole or not at all; any thread may."""
        sha256 = hashlib.sha256(data).hexdigest()
        path = self.blob_path(sha256)
        if not path.exists() or path.read_bytes() != data:  # what was damaged is mended
            write_atomically(path, data)
        return sha256

    def add_reply(self, run: str, job: Job, reply: Reply) -> str:
        """Record a finished job with all it measured, in one transaction; returns its id."""
        samples = {arm: _plain(each) for arm, each in reply.baselines.items()}
        results = {
            kernel: (r.status.value, _plain(r.samples), r.detail, dict(r.evidence))
            for kernel, r in reply.results.items()
        }
        with self.transaction():
            row = {
                "run": run,
                "kind": job.kind,
                "problem": self.add_problem(job.problem) if job.problem else None,
                "kernels": canonical(sorted(kernel.id for kernel in job.kernels)),
                "seed": job.seed,
                "device": self.add_device(reply.device) if reply.device else None,
                "gpu_seconds": reply.gpu_seconds,
                "finished": time.time(),
                "evidence": canonical(dict(reply.evidence)),
            }
            id_ = digest(row, results, samples)
            insert(self.db, "job", {"id": id_, **row})
            for arm, each in samples.items():
                insert(self.db, "baseline", {"job": id_, "arm": arm, "samples": canonical(each)})
            for kernel, (status, times, detail, evidence) in results.items():
                self._result(
                    job.kind,
                    {"job": id_, "kernel": kernel, "status": status, "detail": detail},
                    times,
                    canonical(evidence),
                )
        return id_

    def _result(self, kind: str, row: dict[str, Any], samples: Any, evidence: str) -> None:
        if kind == "gate":
            self._add("gate", {**row, "gate": "numeric", "evidence": evidence})
        else:
            more = {"samples": canonical(samples), "evidence": evidence}
            insert(self.db, "measurement", {**row, **more})

    def add_verdict(self, kernel: str, verdict: Verdict, problem: Problem | None = None) -> None:
        """Record what a gate said of a kernel. HACK goes into quarantine, with the problem."""
        row = {
            "kernel": kernel,
            "gate": verdict.gate,
            "detail": verdict.detail,
            "evidence": canonical(dict(verdict.evidence)),
        }
        with self.transaction():
            if verdict.status is Status.HACK:
                where = self.add_problem(problem) if problem else None
                self._add("quarantine", {**row, "problem": where})
            else:
                self._add("gate", {**row, "job": None, "status": verdict.status.value})

    def _add(self, table: str, row: Mapping[str, Any]) -> str:
        id_ = digest(table, row)
        insert(self.db, table, {"id": id_, **row})
        return id_


def _plain(samples: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    return {protocol: list(values) for protocol, values in samples.items()}


def merge(into: Store, other: Path) -> None:
    """Add all that the run folder `other` has and `into` has not; twice is the same as once, and
    either way round gives the same rows. Blobs come first, so that no row is ever without; of a run
    that goes on meanwhile, what it has when the merge begins.

    Raises StoreError when `other` is no store or holds a damaged blob.
    """
    with Store(other, readonly=True) as source, source.snapshot():
        for (sha256,) in source.db.execute("SELECT DISTINCT cubin FROM build WHERE cubin NOT NULL"):
            if not into.blob_path(sha256).exists():
                into.put_blob(source.blob(sha256))
        with into.transaction():
            for table in TABLES:
                rows = source.db.execute(f"SELECT * FROM {table}")
                marks = ", ".join("?" * len(rows.description))
                into.db.executemany(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", rows)
