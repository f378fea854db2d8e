"""Scripts in a Python of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import hgemm_packs


def run(script: str, **environment: str) -> str:
    """Run a script in a fresh interpreter; its standard output."""
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env=os.environ | environment,
        cwd=Path(hgemm_packs.__file__).parents[1],
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr
