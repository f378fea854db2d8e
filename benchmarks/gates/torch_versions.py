"""Which versions of torch passed the tests of its own ways of calling us, on the CPU.

    python -m benchmarks.gates.torch_versions COMMIT VERSION=JUNIT.xml...

records runs in environments of other versions than the pinned one, which CI runs: of torch_compile,
training, model, program and test_compile_words.py in tests/cpu. What is on file of others stays.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.gates.gpu_tests import verdicts

OUT = Path(__file__).resolve().parents[1] / "results" / "torch_versions.json"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("commit")
    parser.add_argument("runs", nargs="+", metavar="VERSION=JUNIT.xml")
    given = parser.parse_args(arguments)
    known = json.loads(OUT.read_text(encoding="utf-8")) if OUT.exists() else {}
    for run in given.runs:
        version, _, path = run.partition("=")
        found = verdicts([Path(path)], given.commit)
        bad = sorted(name for name, word in found["tests"].items() if word in ("failure", "error"))
        skipped = [name for name, word in found["tests"].items() if word == "skipped"]
        known[version] = {
            "commit": found["commit"],
            "passed": found["counts"].get("passed", 0),
            "skipped": len(skipped),
            "failed": bad,
        }
        print(version, known[version])
    text = json.dumps(known, indent=1, sort_keys=True) + "\n"
    OUT.write_text(text, encoding="utf-8")
    return int(any(each["failed"] for each in known.values()))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
