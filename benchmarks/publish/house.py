"""benchmarks/results/house.json: how large the house is, counted from the checkout itself.

`python -m benchmarks.publish.house` rewrites the file; --print only shows it. The import graph is
that of tests/house.py, which a test holds to its order. Nothing is measured, and no GPU is needed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hgemm_packs.tuning.shapes import tomllib
from tests import house
from tests.house import REPOSITORY

OUT = REPOSITORY / "benchmarks" / "results" / "house.json"
#: What `make type` links for mypy.
TYPED = "build/typed/hgemm_packs"
#: Code of ours; tests are counted apart from it.
CODE = ("hgemm_packs", "generator", "benchmarks", "packaging")


def figures(root: Path = REPOSITORY) -> dict[str, Any]:
    """What house.json says, by name."""
    found = house.house(root)
    lengths = house.lengths(root, CODE)
    longest = max(lengths, key=lambda name: (lengths[name], name))
    counts = house.folders(root, (*CODE, "tests"))
    circles = [*house.module_circles(found), *house.room_circles(found)]
    return {
        "house.modules_flat_max": max(counts.values()),
        "house.upward_arrows": len(house.upward(found)),
        "house.circles": len(circles),
        "house.agents_md_bytes": (root / "AGENTS.md").stat().st_size,
        "house.results_mb": round(_count_committed_bytes(root, "benchmarks/results") / 1e6, 1),
        "house.mypy_files": len(_list_typed_modules(root)),
        "house.longest_module": {"lines": lengths[longest], "module": longest},
    }


def _count_committed_bytes(root: Path, folder: str) -> int:
    """Bytes of the files that git knows below a folder; house.json itself is not among them."""
    words = ["git", "ls-files", "-z", "--", folder]
    done = subprocess.run(words, cwd=root, capture_output=True, text=True, check=True)
    files = (root / name for name in done.stdout.split("\0") if name)
    return sum(path.stat().st_size for path in files if path != OUT and path.is_file())


def _list_typed_modules(root: Path) -> list[Path]:
    """The modules that mypy is told to check: `make type` has it read the package as installed, a
    folder of links to all of PACKAGES. Stubs count, as mypy counts them."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    asked = project["tool"]["mypy"]
    if asked["files"] != [TYPED] or "exclude" in asked:
        raise ValueError(f"mypy reads {asked['files']}: say here what that is")
    return sorted(house.house(root).modules.values())


def text() -> str:
    return json.dumps(figures(), indent=2, sort_keys=True) + "\n"


def main(arguments: Sequence[str]) -> int:
    if arguments == ["--print"]:
        print(text(), end="")
    else:
        OUT.write_text(text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
