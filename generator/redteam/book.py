"""What a red-team run on a GPU has found out, line by line, so that a killed run goes on.

A line says what the gates of one stage made of one case. Written and read by `on_gpu`; a book of
another commit is refused.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hgemm_packs.generator.redteam.outcome import CaseOutcome
from hgemm_packs.generator.store.lines import read_records
from hgemm_packs.measure.lines_file import LinesFile


@dataclass(slots=True)
class Book:
    """Without a file it remembers nothing beyond the run."""

    _file: LinesFile | None = None
    _last: dict[str, dict[str, Any]] = field(default_factory=dict)
    _stages: dict[str, set[str]] = field(default_factory=dict)

    @classmethod
    def open(cls, path: Path, commit: str) -> Book:
        """The book at `path`, begun where it is not there. Raises ValueError where it is of another
        commit, OSError."""
        book = cls()
        for record in read_records([path]) if path.exists() else []:
            header = record.get("header")
            if header is None:
                book._note(record)
            elif header.get("redteam") != commit:
                raise ValueError(f"{path} has the cases of commit {header.get('redteam')}")
        book._file = LinesFile(path)
        started = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        book._file.write({"header": {"redteam": commit, "started": started}})
        return book

    def write(self, stage: str, outcome: CaseOutcome, final: bool) -> None:
        """What the gates of `stage` made of a case, `final` where no stage comes after it."""
        line = {"stage": stage, "final": final, **asdict(outcome)}
        self._note(line)
        if self._file is not None:
            self._file.write(line)

    def _note(self, line: Mapping[str, Any]) -> None:
        self._last[line["name"]] = dict(line)
        self._stages.setdefault(line["name"], set()).add(line["stage"])

    def has(self, stage: str, name: str) -> bool:
        """Whether the gates of `stage` have spoken of a case."""
        return stage in self._stages.get(name, ())

    def restore(self, outcome: CaseOutcome) -> bool:
        """Set `outcome` to what was last said of its case; whether that was final."""
        line = self._last.get(outcome.name)
        if line is None:
            return False
        outcome.undecided = False
        outcome.got_gate, outcome.detail = line["got_gate"], line["detail"]
        outcome.seconds = line["seconds"]
        return bool(line["final"])
