"""The raw lines of an exhaustive sweep as one recording: benchmarks/results/replay/h200.npz.

Run once after the sweep on a GPU. A line is one problem: {"problem": [m, n, k, layout, dtype],
"us": {kernel name: samples}, "failed": {kernel name: reason}, "again": {arm: samples}}.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hgemm_packs.generator.core.space import FITTED, Space, catalogue
from hgemm_packs.generator.core.spec import Choice, Status
from hgemm_packs.generator.devices.recording import SAMPLES, Screen, save
from hgemm_packs.generator.store.lines import Record, read_records
from hgemm_packs.problem import Problem

RESULTS = Path(__file__).resolve().parents[1] / "results"
RECORDING = RESULTS / "replay" / "h200.npz"
BASELINES = ("torch", "cublaslt")


def convert(paths: Sequence[Path], out: Path) -> None:
    """Write the recording of these files of lines, gzipped or not.

    An admitted choice that was neither measured nor failed did not build. Raises ValueError for a
    name that no admitted choice has.
    """
    screens = sorted(
        (screen_of(record) for record in read_records(paths)),
        key=lambda s: (s.problem.m * s.problem.n * s.problem.k, str(s.problem)),
    )
    kinds = sorted({(s.problem.layout, s.problem.dtype) for s in screens})
    save(out, screens, {kind: catalogue(*kind) for kind in kinds})


def screen_of(record: Record) -> Screen:
    """One line as a screen; an arm of `again` is a baseline or a kernel's name."""
    problem = Problem(*record["problem"])
    listed = (choice for choice in Space(problem).core if choice.family not in FITTED)
    by_name = {choice.name: choice for choice in listed}
    us, failed, again = record["us"], record["failed"], record["again"]
    strange = (us.keys() | failed.keys() | again.keys()) - by_name.keys() - set(BASELINES)
    if strange:
        raise ValueError(f"{problem}: no admitted choice is called {min(strange)}")
    samples = np.full((len(by_name), SAMPLES), np.nan)
    status = []
    for row, name in zip(samples, by_name, strict=True):
        row[: len(us.get(name, ()))] = us.get(name, ())
        status.append(_status(name, us, failed))
    return Screen(
        problem,
        tuple(by_name.values()),
        samples,
        tuple(status),
        {arm: times for arm, times in again.items() if arm in BASELINES},
        _find_known(again, by_name),
    )


def _find_known(again: dict[str, Any], by_name: dict[str, Choice]) -> dict[Choice, list[float]]:
    return {by_name[arm]: times for arm, times in again.items() if arm in by_name}


def _status(name: str, us: dict[str, Any], failed: dict[str, str]) -> Status:
    if name in us:
        return Status.OK
    if name in failed:
        return Status.TIMEOUT if failed[name] == "hung" else Status.NUMERIC
    return Status.BUILD


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("raw", type=Path, nargs="+", help="files of lines, also gzipped or packed")
    parser.add_argument("-o", "--out", type=Path, default=RECORDING)
    args = parser.parse_args()
    convert(args.raw, args.out)
    print(f"{args.out}: {args.out.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
