"""The table of this machine as one file for others: what was measured, and nothing about who did.

Called by `hgemm-packs contribute`; `generate merge` reads the file, which is a zip of two members:
`facts.json`, a run in the words of the journal, and `jobs.jsonl`, its jobs line by line. Names of
machines, users and folders are in neither, nor are moments, but for the day. The same journal gives
the same bytes.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import PackError, of_path
from ..pack.local import place
from ..pack.writer import compact, write
from . import journal
from .journal import Measured, Run

SCHEMA = "hgemm-packs/contribution-1"
FACTS, JOBS = "facts.json", "jobs.jsonl"
_DATE = (1980, 1, 1, 0, 0, 0)


class Contributed(NamedTuple):
    """What a file holds: of which GPU model, how many problems, how many jobs."""

    run: Run
    problems: int
    jobs: int


def list_tables(root: Path) -> dict[str, Path]:
    """Folders with evidence, by the GPU model that it is of. Raises OSError."""
    base = place.base_of(root)
    found = {}
    for folder in sorted(base.iterdir()) if base.is_dir() else ():
        jobs = journal.read(folder)[0] if (folder / journal.FILE).is_file() else []
        if jobs:
            found[jobs[-1].run.profile] = folder
    return found


def write_contribution(folder: Path, out: Path) -> Contributed:
    """Write the jobs of a table's folder that were measured under the conditions of the last one.
    Raises PackError where there are none, OSError."""
    jobs, _ = journal.read(folder)
    if not jobs:
        raise PackError("no_jobs", "nothing was measured yet: hgemm-packs tune")
    last = jobs[-1].run
    kept = [job for job in jobs if not job.run.changes(last)]
    packs = sorted({source for job in kept for source in job.run.packs})
    run = last._replace(packs=tuple(packs))
    lines = "".join(f"{compact(_values(job, place))}\n" for place, job in enumerate(kept))
    facts = {"schema": SCHEMA, "jobs": len(kept), **journal.run_values(run)}
    text = json.dumps(facts, indent=1, sort_keys=True) + "\n"
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in ((FACTS, text), (JOBS, lines)):
            file.writestr(zipfile.ZipInfo(name, _DATE), data, zipfile.ZIP_DEFLATED)
    with of_path(out):
        fresh = out.with_name(f".{out.name}.new")
        write(fresh, made.getvalue())
        fresh.replace(out)
    return Contributed(run, len({job.problem for job in kept}), len(kept))


def _values(job: Measured, place: int) -> dict[str, Any]:
    """A job as its line; of the moment only the order is left."""
    values = journal.job_values(job)
    return values | {"evidence": {**values["evidence"], "finished": float(place)}}


def choose(tables: dict[str, Path], profile: str | None) -> Path:
    """The folder of a GPU model, or the only one there is. Raises PackError."""
    names = ", ".join(f'"{name}"' for name in tables)
    if not tables:
        raise PackError("no_jobs", "nothing was measured on this machine: hgemm-packs tune")
    if profile is None and len(tables) > 1:
        raise PackError("several", f"several GPU models were measured: name one of {names}")
    if profile is not None and profile not in tables:
        raise PackError("unknown_profile", f"{profile!r} was not measured here; known: {names}")
    chosen: Sequence[Path] = [tables[profile]] if profile else list(tables.values())
    return chosen[0]
