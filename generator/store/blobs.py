"""The kernels that a store has: records in its database, cubins beside it under their hashes.

The part of `reader` that looks at files. A cubin is complete or absent; what was changed since is
not handed out.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from dataclasses import replace
from pathlib import Path

from hgemm_packs.generator.core.spec import Choice, CompiledKernel, Status, Verdict
from hgemm_packs.generator.store.schema import StoreError


class Blobs:
    """What was built, and what came of it."""

    db: sqlite3.Connection
    folder: Path

    def find_build(self, choice: Choice, toolchain: str) -> CompiledKernel | Verdict | None:
        """The kernel of a choice, or why there is none; None when it was not tried, or its cubin is
        not on this disk."""
        row = self.db.execute(
            "SELECT status, gate, detail, fields, facts, cubin FROM build"
            " WHERE candidate = ? AND toolchain = ? ORDER BY status != 'OK', id",
            (choice.key, toolchain),
        ).fetchone()
        if row is None:
            return None
        status, gate, detail, fields, facts, cubin = row
        if cubin is None:
            return Verdict(gate, Status(status), detail, json.loads(facts))
        try:
            found = CompiledKernel(json.loads(fields), self.blob(cubin), json.loads(facts))
        except StoreError:
            return None
        return replace(found, proof=self._find_proof(found.id))

    def _find_proof(self, kernel_id: str) -> Verdict | None:
        """What the numeric gate said of a kernel before it came to this run."""
        row = self.db.execute(
            "SELECT status, detail, evidence FROM gate"
            " WHERE kernel = ? AND gate = 'numeric' AND job IS NULL",
            (kernel_id,),
        ).fetchone()
        return Verdict("numeric", Status(row[0]), row[1], json.loads(row[2])) if row else None

    def kernel(self, kernel_id: str) -> CompiledKernel:
        """A built kernel by its id. Raises KeyError, StoreError when its cubin is missing."""
        row = self.db.execute(
            "SELECT fields, facts, cubin FROM build WHERE kernel = ? ORDER BY id", (kernel_id,)
        ).fetchone()
        if row is None:
            raise KeyError(kernel_id)
        return CompiledKernel(json.loads(row[0]), self.blob(row[2]), json.loads(row[1]))

    def blob(self, sha256: str) -> bytes:
        """Content by digest. Raises StoreError when it is missing or damaged."""
        path = self.blob_path(sha256)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise StoreError(f"{path} is missing") from None
        if hashlib.sha256(data).hexdigest() != sha256:
            raise StoreError(f"{path} is damaged")
        return data

    def blob_path(self, sha256: str) -> Path:
        return self.folder / "blobs" / sha256[:2] / sha256
