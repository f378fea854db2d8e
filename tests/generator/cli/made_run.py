"""A run made by `generate`."""

from __future__ import annotations

import hashlib
from pathlib import Path

from tests.generator.command import PROBLEMS, listed, simulated


def hashes(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in files
    }


class Made:
    """A run, the options that made it, and the words of the command."""

    def __init__(self, folder: Path) -> None:
        shapes = listed(folder / "shapes.toml", PROBLEMS)
        self.run = folder / "run"
        self.options = ("--shapes", shapes, "--budget", "20s", "--seed", 1)
        self.answer = simulated(*self.options, "--run", self.run, drawn=True)
