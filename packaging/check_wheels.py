"""What a wheel must pass before it is published: `python packaging/check_wheels.py dist/*.whl`.

Run by `make wheel-check`, the release workflow and `benchmarks/distribution/wheel_facts.py`. Asks
the tools that know (auditwheel, abi3audit, check-wheel-contents, twine), and looks itself for what
they do not: sizes, names of folders of the machine that built it. It changes nothing.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

CORE_BYTES = 2 << 20
#: PyPI's own limit for a file.
DATA_BYTES = 100 << 20
#: Oldest glibc that the core may ask for: torch's own wheels ask for this one.
MANYLINUX = (2, 28)
# An absolute path of a machine that builds, and not of one that runs: no /proc, /sys, /dev.
BUILD_PATH = re.compile(rb"/(?:home|root|tmp|work|build|project|github|Users|usr/include)/[\w./-]+")


class Failed(Exception):
    """A check that a wheel did not pass; the text is the tool's."""


def is_core(wheel: Path) -> bool:
    return wheel.name.startswith("hgemm_packs-")


def check(wheel: Path) -> dict[str, str]:
    """What every check of one wheel said, by its name. Raises Failed at the first that fails."""
    checks = {
        "auditwheel": auditwheel,
        "abi3audit": abi3audit,
        "check-wheel-contents": contents,
        "twine": twine,
        "size": size,
        "paths": paths,
    }
    native = {"auditwheel", "abi3audit"}
    asked: dict[str, Callable[[Path], str]] = {
        name: work for name, work in checks.items() if is_core(wheel) or name not in native
    }
    return {name: work(wheel) for name, work in asked.items()}


def auditwheel(wheel: Path) -> str:
    """The oldest platform that the extensions run on is not newer than the one that we promise."""
    said = " ".join(_tool(wheel, "auditwheel", "show").split())
    found = re.search(r'following platform tag: "(manylinux_(\d+)_(\d+)_\w+)"', said)
    if found is None or (int(found[2]), int(found[3])) > MANYLINUX:
        raise Failed(f"auditwheel: not manylinux_{MANYLINUX[0]}_{MANYLINUX[1]}: {said}")
    return found[1]


def abi3audit(wheel: Path) -> str:
    """Every extension keeps to the limited API of the oldest Python that the wheel names."""
    (facts,) = json.loads(_tool(wheel, "abi3audit", "--strict", "--report"))["specs"].values()
    found = {each["name"]: each["result"]["computed"] for each in facts["wheel"]}
    if len(found) != 2:
        raise Failed(f"abi3audit: {len(found)} extensions, not two")
    return ", ".join(f"{name} {version}" for name, version in sorted(found.items()))


def contents(wheel: Path) -> str:
    return _tool(wheel, "check_wheel_contents").removeprefix(f"{wheel.name}: ")


def twine(wheel: Path) -> str:
    said = _tool(wheel, "twine", "--no-color", "check", "--strict")
    return said.split()[-1]


def size(wheel: Path) -> str:
    limit, found = CORE_BYTES if is_core(wheel) else DATA_BYTES, wheel.stat().st_size
    if found >= limit:
        raise Failed(f"size: {found} bytes, not below {limit}")
    return f"{found} bytes"


def paths(wheel: Path) -> str:
    """No extension names a folder of its builder: that would differ from build to build."""
    with zipfile.ZipFile(wheel) as archive:
        libraries = [name for name in archive.namelist() if name.endswith(".so")]
        for name in libraries:
            found = BUILD_PATH.search(archive.read(name))
            if found:
                raise Failed(f"paths: {name} names {found[0].decode()}")
    return f"none in {len(libraries)} extensions"


def _tool(wheel: Path, module: str, *arguments: str) -> str:
    # In the wheel's folder and by its name: what a tool says is kept, and names no folder here.
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments, wheel.name],
        cwd=wheel.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise Failed(f"{module}: {(done.stdout + done.stderr).strip()}")
    return done.stdout.strip()


def main(names: Sequence[str]) -> int:
    if not names:
        print("check_wheels: no wheel given", file=sys.stderr)
        return 2
    for wheel in map(Path, names):
        print(wheel.name)
        try:
            for name, said in check(wheel).items():
                print(f"  {name}: {' '.join(said.split())}")
        except (Failed, OSError) as error:
            print(f"  FAILED {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
