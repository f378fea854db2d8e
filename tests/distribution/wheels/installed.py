"""An environment with torch and what torch needs, and nothing else; wheels put into it; matmul run
there on the stand-in driver. Used by the tests of wheels and by
`benchmarks/distribution/wheel_facts.py`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]

#: "libcuda.so.1" is what the launcher opens by itself.
REAL, NONE = "libcuda.so.1", "libno-such-driver.so.1"
CPU, CUDA = 1, 2


@dataclass(frozen=True)
class Scenario:
    """One fresh process: a driver, the type of device that tensors are expected on, and a folder
    that data wheels are installed in beside the environment's own."""

    driver: str
    device_type: int = CPU
    site: str = ""


# torch is imported once and every scenario forked from there: it is most of the time. The package
# is imported in the child. Integers up to 4, K = 128: every sum is exact in half precision.
PROGRAM = """
import ctypes, io, json, logging, multiprocessing, sys
import torch

def multiply(driver, device_type, site):
    sys.path[:0] = [site] if site else []
    said = io.StringIO()
    logging.basicConfig(stream=said, level=logging.WARNING, format="%(message)s")
    import hgemm_packs
    from hgemm_packs import dispatch, launcher, matmul, select
    if driver != dispatch.DRIVER:
        dispatch.start(driver, device_type)
    if driver.startswith("/"):
        ctypes.CDLL(driver).fake_set_device(0)
    right = []
    for m in (64, 64, 32):  # only 64 is in the table
        a, b = (torch.randint(-4, 5, size).half() for size in ((m, 128), (128, 64)))
        right.append(torch.equal(matmul(a, b), a @ b))
    return {
        "right": all(right),
        "counters": hgemm_packs.counters(),
        "warnings": said.getvalue().splitlines(),
        "packs": [each.manifest.pack.version for each in select.find_packs().packs],
        "refused": [each.error.code for each in select.find_packs().refused],
        "place": hgemm_packs.__file__,
    }

if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(1, maxtasksperchild=1) as pool:
        scenarios = [tuple(each.values()) for each in json.loads(sys.argv[1])]
        print(json.dumps(pool.starmap(multiply, scenarios, chunksize=1)))
"""


def environment(folder: Path) -> Path:
    """Make a virtual environment with torch in it by links; its interpreter."""
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    packages = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder)}))
    for name in needed("torch"):
        for part in top_level(metadata.distribution(name)):
            link = packages / part.name
            if not link.exists():
                link.symlink_to(part)
    return python


def needed(name: str) -> set[str]:
    """Installed distributions that one needs, itself included; extras are not needed."""
    found, todo = set(), [name]
    while todo:
        name = todo.pop().lower().replace("_", "-")
        try:
            requires = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue  # of another platform
        if name not in found:
            found.add(name)
            todo += [re.split(r"[^\w.-]", each)[0] for each in requires if "extra ==" not in each]
    return found


def top_level(distribution: metadata.Distribution) -> Iterable[Path]:
    """Files and folders that a distribution has put into site-packages."""
    names = {file.parts[0] for file in distribution.files or () if file.parts[0] != ".."}
    return [Path(str(distribution.locate_file(name))) for name in names - {"__pycache__"}]


def install(python: Path, *wheels: Path, upgrade: bool = False) -> str:
    """Install wheels from their files alone; what pip said. Raises CalledProcessError."""
    # What lies on the caller's path would count as installed.
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-index"]
    flags = ["--no-deps", "--disable-pip-version-check", *(["--upgrade"] if upgrade else [])]
    done = subprocess.run(
        [*pip, *flags, *map(str, wheels)], env=clean, check=True, capture_output=True, text=True
    )
    return done.stdout


def run(python: Path, scenarios: Iterable[Scenario], folder: Path) -> list[dict[str, Any]]:
    """What each scenario saw, with no setting of the caller's and an empty cache."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("HGEMM_PACKS")}
    clean.pop("PYTHONPATH", None)
    done = subprocess.run(
        [str(python), "-c", PROGRAM, json.dumps([asdict(each) for each in scenarios])],
        cwd=folder,
        env=clean | {"XDG_CACHE_HOME": str(folder / "no-cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found
