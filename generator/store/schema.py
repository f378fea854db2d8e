"""The store's tables, and what is needed to trust a file as one of ours.

Called by `run_folder` alone. Every row is identified by a hash of what it says, so that the rows of
two stores can be put together without asking which is right.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

APPLICATION_ID = 0x48475053  # "HGPS", in the file's header
VERSION = 1

#: Parents before children: the order in which rows are copied.
TABLES = {
    "run": """
        id TEXT PRIMARY KEY, started REAL NOT NULL, config TEXT NOT NULL""",
    "problem": """
        id TEXT PRIMARY KEY, m INTEGER NOT NULL, n INTEGER NOT NULL, k INTEGER NOT NULL,
        layout TEXT NOT NULL, dtype TEXT NOT NULL, out_dtype TEXT NOT NULL, acc TEXT NOT NULL,
        epilogue TEXT NOT NULL, align INTEGER NOT NULL, packed INTEGER NOT NULL""",
    "device": "id TEXT PRIMARY KEY, facts TEXT NOT NULL",
    "toolchain": "id TEXT PRIMARY KEY, facts TEXT NOT NULL",
    "candidate": "id TEXT PRIMARY KEY, family TEXT NOT NULL, genome TEXT NOT NULL",
    "proposal": """
        id TEXT PRIMARY KEY, run TEXT NOT NULL REFERENCES run, problem TEXT NOT NULL
        REFERENCES problem, candidate TEXT NOT NULL REFERENCES candidate, proposer TEXT NOT NULL,
        operator TEXT NOT NULL, parents TEXT NOT NULL""",
    "build": """
        id TEXT PRIMARY KEY, candidate TEXT NOT NULL REFERENCES candidate, toolchain TEXT NOT NULL
        REFERENCES toolchain, status TEXT NOT NULL, gate TEXT NOT NULL, detail TEXT NOT NULL,
        kernel TEXT, cubin TEXT, fields TEXT NOT NULL, facts TEXT NOT NULL""",
    "job": """
        id TEXT PRIMARY KEY, run TEXT NOT NULL REFERENCES run, kind TEXT NOT NULL, problem TEXT
        REFERENCES problem, kernels TEXT NOT NULL, seed INTEGER NOT NULL, device TEXT
        REFERENCES device, gpu_seconds REAL NOT NULL, finished REAL NOT NULL,
        evidence TEXT NOT NULL""",
    "measurement": """
        job TEXT NOT NULL REFERENCES job, kernel TEXT NOT NULL, status TEXT NOT NULL,
        samples TEXT NOT NULL, detail TEXT NOT NULL, evidence TEXT NOT NULL,
        PRIMARY KEY (job, kernel)""",
    "baseline": """
        job TEXT NOT NULL REFERENCES job, arm TEXT NOT NULL, samples TEXT NOT NULL,
        PRIMARY KEY (job, arm)""",
    "gate": """
        id TEXT PRIMARY KEY, job TEXT REFERENCES job, kernel TEXT NOT NULL, gate TEXT NOT NULL,
        status TEXT NOT NULL, detail TEXT NOT NULL, evidence TEXT NOT NULL""",
    "quarantine": """
        id TEXT PRIMARY KEY, kernel TEXT NOT NULL, problem TEXT REFERENCES problem,
        gate TEXT NOT NULL, detail TEXT NOT NULL, evidence TEXT NOT NULL""",
}
#: Statuses of a kernel that did nothing wrong.
PASSED = "('OK', 'SLOWER', 'NOISE')"
_INDEXES = f"""
CREATE INDEX proposal_of ON proposal (problem, candidate);
CREATE INDEX build_of ON build (candidate, toolchain);
CREATE INDEX build_kernel ON build (kernel);
CREATE INDEX job_of ON job (problem, kind);
CREATE INDEX job_kind ON job (kind);
CREATE INDEX measurement_failed ON measurement (kernel) WHERE status NOT IN {PASSED};
CREATE INDEX gate_kernel ON gate (kernel);
CREATE INDEX gate_job ON gate (job);
"""


class StoreError(RuntimeError):
    """The folder holds no store of this version, a damaged one, or one that another process
    writes to; the message says which."""


def canonical(value: Any) -> str:
    """JSON that two machines write alike. Raises TypeError for what is not plain data."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def digest(*values: Any) -> str:
    """sha256 of the canonical JSON of `values`."""
    return hashlib.sha256(canonical(values).encode()).hexdigest()


def connect(path: Path, *, readonly: bool) -> sqlite3.Connection:
    """Open a store's database, made first if it is absent and may be written.

    A commit survives kill -9. After a loss of power the last seconds may be missing and are then
    measured again; the file stays whole (WAL, synchronous NORMAL). Raises StoreError.
    """
    if readonly and not path.exists():
        raise StoreError(f"no store at {path}")
    try:
        db = sqlite3.connect(_uri(path, readonly), uri=True, timeout=30, isolation_level=None)
        if not readonly:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = NORMAL")
            db.execute("PRAGMA foreign_keys = ON")
            db.execute("PRAGMA cache_size = -65536")  # KiB: keys are hashes, inserts go everywhere
            if not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                _create(db)
        _check(db, path)
    except sqlite3.DatabaseError as error:
        raise StoreError(f"{path} is no store, or damaged: {error}") from error
    return db


def _uri(path: Path, readonly: bool) -> str:
    uri = path.resolve().as_uri()
    if not readonly:
        return uri
    # Reading a WAL needs to write beside it; where that is forbidden, nobody else writes either.
    alone = not path.with_name(path.name + "-wal").exists() and not os.access(path.parent, os.W_OK)
    return uri + ("?mode=ro&immutable=1" if alone else "?mode=ro")


def _create(db: sqlite3.Connection) -> None:
    """All tables in one transaction: a killed creation leaves an empty file."""
    db.execute("BEGIN IMMEDIATE")
    for name, columns in TABLES.items():
        # Rows found by both of their keys need no second number.
        rowid = " WITHOUT ROWID" if name in ("measurement", "baseline") else ""
        db.execute(f"CREATE TABLE {name} ({columns}){rowid}")
    for statement in filter(None, map(str.strip, _INDEXES.split(";"))):
        db.execute(statement)
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.execute(f"PRAGMA user_version = {VERSION}")
    db.execute("COMMIT")


def _check(db: sqlite3.Connection, path: Path) -> None:
    application = db.execute("PRAGMA application_id").fetchone()[0]
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if application != APPLICATION_ID:
        raise StoreError(f"{path} is a database of something else")
    if version != VERSION:
        raise StoreError(f"{path} has schema {version}; this version reads {VERSION}")
    damage = db.execute("PRAGMA quick_check(1)").fetchone()[0]
    if damage != "ok":
        raise StoreError(f"{path} is damaged: {damage}")


def insert(db: sqlite3.Connection, table: str, row: Mapping[str, Any]) -> None:
    """Add a row unless it is there already."""
    marks = ", ".join("?" * len(row))
    columns = ", ".join(row)
    db.execute(f"INSERT OR IGNORE INTO {table} ({columns}) VALUES ({marks})", tuple(row.values()))
