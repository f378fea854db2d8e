"""Runs the tests marked gpu and multigpu and records each verdict with the commit it ran on.

    python -m benchmarks.gates.gpu_tests [OUT.json] [--from COMMIT JUNIT.xml...]

Running them needs a GPU and a pack on HGEMM_PACKS_PATH; --from records a run made elsewhere, in one
or more parts, or of other tests, as those of `make trainers`. On one GPU those that want two are
left out. Ends with 1 unless all passed: a skip is no pass.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

REPOSITORY = Path(__file__).resolve().parents[2]
OUT = REPOSITORY / "benchmarks" / "results" / "gpu_tests.json"


def verdicts(parts: Sequence[Path], commit: str) -> dict[str, Any]:
    """Commit, counts, and name -> outcome of every test in JUnit files. Raises ValueError where two
    have a test: neither outcome may hide the other."""
    outcomes: dict[str, str] = {}
    for junit in parts:
        for case in ElementTree.parse(junit).iter("testcase"):
            failed = [tag for tag in ("failure", "error", "skipped") if case.find(tag) is not None]
            name = f"{case.get('classname')}::{case.get('name')}"
            if name in outcomes:
                raise ValueError(f"{junit.name}: {name} is in another file, too")
            outcomes[name] = failed[0] if failed else "passed"
    counts = {word: list(outcomes.values()).count(word) for word in sorted({*outcomes.values()})}
    return {"commit": commit, "counts": counts, "tests": dict(sorted(outcomes.items()))}


def run(junit: Path) -> str:
    """Run the tests; returns the commit of the checkout."""
    marked = "gpu and not multigpu" if torch.cuda.device_count() == 1 else "gpu or multigpu"
    words = [sys.executable, "-m", "pytest", "-q", "-m", marked, f"--junitxml={junit}"]
    subprocess.run(words, cwd=REPOSITORY, check=False)
    head = ["git", "rev-parse", "HEAD"]
    done = subprocess.run(head, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path, nargs="?", default=OUT)
    parser.add_argument("--from", dest="run", nargs="+", metavar=("COMMIT", "JUNIT.xml"))
    given = parser.parse_args(arguments)
    if given.run:
        commit, *parts = given.run
        if not parts:
            parser.error("--from needs a commit and the files of its run")
        record = verdicts([Path(part) for part in parts], commit)
    else:
        with tempfile.TemporaryDirectory() as folder:
            junit = Path(folder) / "junit.xml"
            record = verdicts([junit], run(junit))
    given.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(f"{record['counts']} at {record['commit'][:12]}, wrote {given.out.name}")
    return 0 if set(record["counts"]) == {"passed"} else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
