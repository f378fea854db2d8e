"""Runs the tests marked gpu and multigpu and records each verdict with the commit it ran on.

python benchmarks/gpu_tests.py [OUT.json] needs a GPU and a pack on HGEMM_PACKS_PATH; with
`--from JUNIT.xml COMMIT` it records a run made elsewhere.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
OUT = REPOSITORY / "benchmarks" / "results" / "gpu_tests.json"


def verdicts(junit: Path, commit: str) -> dict[str, Any]:
    """Commit, counts, and name -> outcome of every test in a JUnit file."""
    outcomes = {}
    for case in ElementTree.parse(junit).iter("testcase"):
        failed = [tag for tag in ("failure", "error", "skipped") if case.find(tag) is not None]
        outcomes[f"{case.get('classname')}::{case.get('name')}"] = failed[0] if failed else "passed"
    counts = {word: list(outcomes.values()).count(word) for word in sorted({*outcomes.values()})}
    return {"commit": commit, "counts": counts, "tests": dict(sorted(outcomes.items()))}


def run(junit: Path) -> str:
    """Run the tests; returns the commit of the checkout."""
    words = [sys.executable, "-m", "pytest", "-q", "-m", "gpu or multigpu", f"--junitxml={junit}"]
    subprocess.run(words, cwd=REPOSITORY, check=False)
    head = ["git", "rev-parse", "HEAD"]
    done = subprocess.run(head, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--from"]:
        out, record = OUT, verdicts(Path(arguments[1]), arguments[2])
    else:
        out = Path(arguments[0]) if arguments else OUT
        with tempfile.TemporaryDirectory() as folder:
            junit = Path(folder) / "junit.xml"
            record = verdicts(junit, run(junit))
    out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(f"{record['counts']} at {record['commit'][:12]}, wrote {out.name}")
    return 0 if set(record["counts"]) == {"passed"} else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
