"""What the files of test_host_path.py say of where they come from: no names of hosts, folders or
branches, and no raw samples."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

from hgemm_packs import report


@pytest.hookimpl
def pytest_benchmark_generate_machine_info() -> dict[str, str]:
    gpu = torch.cuda.is_available()
    return {
        "device": torch.cuda.get_device_name(0) if gpu else "stand-in driver, CPU tensors",
        "cpu": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        **report.runtime_versions(0),
    }


@pytest.hookimpl
def pytest_benchmark_generate_commit_info() -> dict[str, Any]:
    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", *words], cwd=Path(__file__).parent, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    return {"id": git("rev-parse", "HEAD"), "dirty": bool(git("status", "--porcelain", "-uno"))}


@pytest.hookimpl
def pytest_benchmark_update_json(output_json: dict[str, Any]) -> None:
    for each in output_json["benchmarks"]:
        del each["stats"]["data"]
