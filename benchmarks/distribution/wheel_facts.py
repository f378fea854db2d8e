"""Facts of the wheels as they would be published: sizes, checks, the same bytes twice, upgrades.

    python -m benchmarks.distribution.wheel_facts packs/sm_90a

Needs the extra `release` and no GPU; takes minutes. Builds the commit that is checked out, not what
lies about, and writes results/distribution/wheels.json. What the aarch64 wheel does when it runs is
not shown: no such machine is here, the release workflow has one.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "packaging")]

import check_wheels  # noqa: E402
import core_wheel  # noqa: E402
import data_wheel  # noqa: E402
import wheel_zip  # noqa: E402

from hgemm_packs.pack.manifest import LAUNCHER_ABI, PackInfo  # noqa: E402
from tests import fake_driver, packs  # noqa: E402
from tests.distribution.wheels import installed  # noqa: E402
from tests.distribution.wheels.installed import CUDA, NONE, REAL, Scenario  # noqa: E402

OUT = ROOT / "benchmarks" / "results" / "distribution" / "wheels.json"
MODULE = "hgemm_packs_sm90a"


def git(*command: str) -> bytes:
    return subprocess.run(["git", *command], cwd=ROOT, check=True, capture_output=True).stdout


def build_twice(folder: Path, commit: str, pack: Path) -> dict[str, tuple[Path, Path]]:
    """Every wheel from two checkouts that differ in place, age, modes, time zone and caches."""
    found: dict[str, list[Path]] = {"core": [], "core aarch64": [], "data": []}
    for name, umask, zone in (("one", 0o022, "UTC"), ("another/place", 0o077, "Asia/Tokyo")):
        os.umask(umask)
        os.environ |= {"TZ": zone, "ZIG_GLOBAL_CACHE_DIR": str(folder / name / "zig")}
        source, out = folder / name / "source", folder / name / "dist"
        source.mkdir(parents=True)
        subprocess.run(["tar", "x", "-m"], cwd=source, input=git("archive", commit), check=True)
        shutil.copytree(pack, folder / name / "pack", copy_function=shutil.copyfile)
        found["core"].append(core_wheel.build(out, source, "x86_64"))
        found["core aarch64"].append(core_wheel.build(out, source, "aarch64"))
        found["data"].append(data_wheel.build(folder / name / "pack", out))
    os.umask(0o022)
    return {name: (first, second) for name, (first, second) in found.items()}


def facts(first: Path, second: Path) -> dict[str, Any]:
    data = first.read_bytes()
    return {
        "file": first.name,
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "same_twice": data == second.read_bytes(),
        "checks": check_wheels.check(first),
    }


def small_wheel(folder: Path, version: str, abi: int = LAUNCHER_ABI) -> Path:
    """A wheel of a small pack for the stand-in driver, as another release would have made it."""
    info = PackInfo("hgemm-packs-sm90a", version, "Apache-2.0", "2026-11-20T00:00:00Z")
    packs.write_good(folder / version, fake_driver.image, pack=info)
    wheel = data_wheel.build(folder / version, folder)
    if abi == LAUNCHER_ABI:
        return wheel
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    manifest = json.loads(files[f"{MODULE}/manifest.json"]) | {"launcher_abi": abi}
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":")) + "\n"
    files[f"{MODULE}/manifest.json"] = text.encode()
    wheel_zip.write(wheel, files, f"{MODULE}-{version}.dist-info")
    return wheel


def upgrades(folder: Path, core: Path, data: Path) -> list[dict[str, Any]]:
    """What a user sees who installs one wheel after the other with pip, on the stand-in driver."""
    folder.mkdir()
    python = installed.environment(folder / "env")
    h200 = str(fake_driver.compile_driver(folder / "h200.so"))
    old = str(fake_driver.compile_driver(folder / "old.so", "-DFAKE_DRIVER_VERSION=12040"))
    a100 = str(fake_driver.compile_driver(folder / "a100.so", "-DFAKE_MAJOR=8"))
    older, newer = LAUNCHER_ABI - 1, LAUNCHER_ABI + 1
    steps: list[tuple[str, Path, str, int]] = [
        ("core alone, H200", core, h200, installed.CPU),
        ("published pack, no driver", data, NONE, CUDA),
        ("published pack, this machine", data, REAL, CUDA),
        ("published pack, driver of CUDA 12.4", data, old, installed.CPU),
        ("published pack, A100", data, a100, installed.CPU),
        ("older release, H200", small_wheel(folder, "0.0.9"), h200, installed.CPU),
        ("newer release, H200", small_wheel(folder, "0.2.0"), h200, installed.CPU),
        ("older release again, H200", small_wheel(folder, "0.0.9"), h200, installed.CPU),
        ("launcher ABI one older", small_wheel(folder, "0.0.5", older), h200, installed.CPU),
        ("launcher ABI one newer", small_wheel(folder, "3.0.0", newer), h200, installed.CPU),
        ("back to a newer release, H200", small_wheel(folder, "0.2.0"), h200, installed.CPU),
    ]
    found = []
    for name, wheel, driver, device_type in steps:
        pip = installed.install(python, wheel, upgrade=True).strip().splitlines()
        (seen,) = installed.run(python, [Scenario(driver, device_type)], folder)
        seen["warnings"] = [each.replace(str(folder), "") for each in seen["warnings"]]
        del seen["place"]
        found.append({"step": name, "wheel": wheel.name, "pip": pip[-1] if pip else ""} | seen)
        print(f"{name}: {seen['counters']}, {seen['warnings']}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("pack", type=Path, help="the sm_90a pack, as hgemm-packs build writes it")
    arguments = parser.parse_args()
    commit = git("rev-parse", "HEAD").decode().strip()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        built = build_twice(folder, commit, arguments.pack.resolve())
        wheels = {name: facts(*both) for name, both in built.items()}
        steps = upgrades(folder / "user", built["core"][0], built["data"][0])
    tools = ("setuptools", "ziglang", "auditwheel", "abi3audit", "check-wheel-contents", "twine")
    result = {
        "core_bytes": wheels["core"]["bytes"],
        "sm90a_bytes": wheels["data"]["bytes"],
        "reproducible": all(each["same_twice"] for each in wheels.values()),
        "commit": commit,
        "wheels": wheels,
        "upgrades": steps,
        "always_right": all(step["right"] for step in steps),
        "python": sys.version.split()[0],
        "zlib": zlib.ZLIB_RUNTIME_VERSION,
        "tools": {name: metadata.version(name) for name in tools},
    }
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(f"wrote {OUT.name}: {result['core_bytes']} and {result['sm90a_bytes']} bytes")


if __name__ == "__main__":
    main()
