"""The jobs of a served evaluator on disk: one SQLite file, which a killed server finds as it was.

Called by the service alone, under its lock. A job is written before its number is told to anybody.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hgemm_packs.generator.store.filelock import FileLock

QUEUED, RUNNING, DONE, FAILED, CANCELLED = "queued", "running", "done", "failed", "cancelled"
FINISHED = (DONE, FAILED, CANCELLED)
SCHEMA = 1
#: Servers that may die over a job before it counts as failed.
ATTEMPTS = 3
_TABLE = """
CREATE TABLE IF NOT EXISTS job (
  number INTEGER PRIMARY KEY, id TEXT UNIQUE NOT NULL, owner TEXT NOT NULL, state TEXT NOT NULL,
  candidate TEXT NOT NULL, problem TEXT NOT NULL, answer TEXT, error TEXT,
  attempts INTEGER NOT NULL, created REAL NOT NULL, ended REAL
) STRICT;
CREATE INDEX IF NOT EXISTS by_owner ON job (owner, number);
CREATE INDEX IF NOT EXISTS by_state ON job (state, number);
"""
_FIELDS = "id, owner, state, candidate, problem, answer, error, attempts, created, ended"


@dataclass(frozen=True, slots=True)
class Job:
    """One evaluation: `candidate` and `problem` as JSON has them. DONE has an `answer`, FAILED an
    `error` of "code" and "message": nothing that the candidate is to blame for. Times are seconds
    since 1970."""

    id: str
    owner: str
    state: str
    candidate: dict[str, Any]
    problem: dict[str, Any]
    answer: dict[str, Any] | None = None
    error: dict[str, str] | None = None
    attempts: int = 0
    created: float = 0.0
    ended: float | None = None

    @property
    def finished(self) -> bool:
        return self.state in FINISHED

    def ends(
        self,
        state: str,
        answer: dict[str, Any] | None = None,
        error: dict[str, str] | None = None,
    ) -> Job:
        """The job as it is when it is over."""
        return replace(self, state=state, answer=answer, error=error, ended=time.time())


class Book:
    """All jobs of a folder, which no other server may use meanwhile.

    Raises LockHeld when one does, ValueError for a file that is no book of this version, OSError.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = FileLock(folder / "lock")
        try:
            self._db = _open(folder / "jobs.sqlite")
        except BaseException:
            self._lock.close()
            raise

    def close(self) -> None:
        self._db.close()
        self._lock.close()

    def add(self, jobs: Iterable[Job]) -> None:
        """Write new jobs, all or none."""
        rows = [_row(job) for job in jobs]
        with self._db:
            marks = ", ".join("?" * len(rows[0]))
            self._db.executemany(f"INSERT INTO job ({_FIELDS}) VALUES ({marks})", rows)

    def write(self, job: Job) -> None:
        """What has become of a job."""
        answer, error = _text(job.answer), _text(job.error)
        values = (job.state, answer, error, job.attempts, job.ended, job.id)
        sets = "state = ?, answer = ?, error = ?, attempts = ?, ended = ?"
        with self._db:
            self._db.execute(f"UPDATE job SET {sets} WHERE id = ?", values)

    def find(self, owner: str, id_: str) -> Job | None:
        """A job of an owner; those of others are not there."""
        where = "WHERE owner = ? AND id = ?"
        found = self._db.execute(f"SELECT {_FIELDS} FROM job {where}", (owner, id_)).fetchone()
        return _job(found) if found else None

    def last(self, owner: str, count: int) -> list[Job]:
        """The last jobs of an owner, the newest first."""
        where = "WHERE owner = ? ORDER BY number DESC LIMIT ?"
        return [
            _job(row)
            for row in self._db.execute(f"SELECT {_FIELDS} FROM job {where}", (owner, count))
        ]

    def unfinished(self) -> list[Job]:
        """Jobs that were queued or running when the last server ended, in their order, queued
        again; those that were running under ATTEMPTS servers have failed."""
        where = "WHERE state IN (?, ?) ORDER BY number"
        rows = self._db.execute(f"SELECT {_FIELDS} FROM job {where}", (QUEUED, RUNNING)).fetchall()
        found = []
        for job in map(_job, rows):
            if job.attempts >= ATTEMPTS:
                words = f"{ATTEMPTS} servers ended while it ran"
                self.write(job.ends(FAILED, error={"code": "server_died", "message": words}))
            else:
                found.append(replace(job, state=QUEUED))
        return found

    def prune(self, kept: int) -> None:
        """Forget the oldest finished jobs beyond `kept`."""
        where = f"state IN {FINISHED} ORDER BY number DESC LIMIT -1 OFFSET ?"
        with self._db:
            self._db.execute(
                f"DELETE FROM job WHERE number IN (SELECT number FROM job WHERE {where})", (kept,)
            )


def _open(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, check_same_thread=False)
    try:
        db.execute("PRAGMA journal_mode = WAL")
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version not in (0, SCHEMA):
            raise ValueError(f"{path} is of version {version}, this program reads {SCHEMA}")
        db.executescript(_TABLE)
        db.execute(f"PRAGMA user_version = {SCHEMA}")
    except sqlite3.DatabaseError as error:
        db.close()
        raise ValueError(f"{path} is no book of jobs: {error}") from None
    except BaseException:
        db.close()
        raise
    return db


def _text(value: Any) -> str | None:
    return None if value is None else json.dumps(value)


def _row(job: Job) -> tuple[Any, ...]:
    documents = [_text(each) for each in (job.candidate, job.problem, job.answer, job.error)]
    return (job.id, job.owner, job.state, *documents, job.attempts, job.created, job.ended)


def _job(row: tuple[Any, ...]) -> Job:
    id_, owner, state, *texts, attempts, created, ended = row
    documents: list[Any] = [None if text is None else json.loads(text) for text in texts]
    candidate, problem, answer, error = documents
    return Job(id_, owner, state, candidate, problem, answer, error, attempts, created, ended)
