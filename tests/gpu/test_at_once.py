"""Kernels whose CTAs wait for each other on a device that is not free, and dependent launches in a
chain of foreign kernels. Each in a process of its own with a time limit: a deadlock fails a test.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gpu.conftest import Wins

pytestmark = pytest.mark.gpu

LIMIT_S = 120.0


def run(*words: str) -> str:
    """What the child says at its end. A child that has none is killed with all it started."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.gpu.at_once", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        pytest.fail(f"{' '.join(words)}: no end after {LIMIT_S:.0f} s")
    assert process.returncode == 0, err
    return out.splitlines()[-1]


@pytest.mark.parametrize("streams", [1, 2])
@pytest.mark.parametrize("pdl", [False, True])
def test_cooperative_kernels_while_the_device_is_busy(wins: Wins, pdl: bool, streams: int) -> None:
    said = run("streams", f"--streams={streams}", *(["--pdl"] if pdl else []))
    if said == "none":
        pytest.skip("no kernel of the pack is cooperative")
    word, pairs = said.split()
    assert word == "done" and int(pairs) >= 1


def test_dependent_launches_among_foreign_kernels(wins: Wins) -> None:
    word, kernels = run("chain").split()
    assert word == "done" and int(kernels) >= 4
