"""The journal of a run of agents: every piece of work that was done, in the run's folder.

A run is a function of its settings, its seed and these pieces. One that was killed is made again
from the first piece on: what is on file is not done again, so the run that goes on is the run that
would have been.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hgemm_packs.generator.store.filelock import FileLock, LockHeld
from hgemm_packs.generator.store.run_folder import StoreError

FILE = "agents.jsonl"
SCHEMA = "hgemm_packs.agents.v1"


class Journal:
    """Pieces of work by name. `settings` are what the run follows from; a journal of others is
    refused. Without a folder nothing is written.

    Raises StoreError for a folder of other settings, a damaged file, or one in use.
    """

    def __init__(self, folder: Path | None, settings: Mapping[str, Any]) -> None:
        self._lock = threading.Lock()
        self._pieces: dict[str, Any] = {}
        self._path = folder / FILE if folder is not None else None
        self._held: FileLock | None = None
        if self._path is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._held = FileLock(self._path.with_suffix(".lock"), wait_s=0.5)
        except LockHeld as error:
            raise StoreError(f"another process writes to {folder}: {error}") from error
        try:
            self._open(self._path, json.loads(json.dumps(settings)))
        except BaseException:
            self.close()
            raise

    def piece(self, name: str, work: Callable[[], dict[str, Any]]) -> Any:
        """The piece of this name: what is on file, else what `work` makes now, filed with the
        "seconds" that it took. It is durable when this returns."""
        if name in self._pieces:
            return self._pieces[name]
        began = time.monotonic()
        made = {**work(), "seconds": round(time.monotonic() - began, 3)}
        with self._lock:
            self._append({"name": name, "piece": made})
            self._pieces[name] = made
        return made

    def close(self) -> None:
        """Let others write."""
        if self._held is not None:
            self._held.close()
            self._held = None

    def _append(self, line: Mapping[str, Any]) -> None:
        if self._path is not None:
            with self._path.open("ab") as file:
                file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())

    def _open(self, path: Path, settings: Any) -> None:
        data = path.read_bytes() if path.exists() else b""
        whole = data.rfind(b"\n") + 1
        if whole != len(data):  # the torn line of a killed run
            os.truncate(path, whole)
        if not whole:
            self._append({"schema": SCHEMA, "settings": settings})
            return
        found, self._pieces = _parse(path, data[:whole])
        for name in sorted(settings.keys() | found.keys()):
            if settings.get(name) != found.get(name):
                raise StoreError(
                    f"{path.parent} is a run with {name} {found.get(name)!r}, not "
                    f"{settings.get(name)!r}: go on as it began, or name another folder"
                )


def read(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings and the pieces of a run's folder, also while the run goes on. Raises OSError,
    and StoreError for a damaged file."""
    path = folder / FILE
    data = path.read_bytes()
    return _parse(path, data[: data.rfind(b"\n") + 1])


def _parse(path: Path, data: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings and pieces of a journal's whole lines. Raises StoreError."""
    try:
        head, *rest = map(json.loads, data.splitlines())
        if head["schema"] != SCHEMA:
            raise ValueError(f"its schema is not {SCHEMA}")
        return dict(head["settings"]), {str(line["name"]): line["piece"] for line in rest}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise StoreError(f"{path} is no journal of agents, or damaged: {error}") from None
