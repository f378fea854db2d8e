"""A built pack as a wheel of data: `python packaging/data_wheel.py PACK --out dist`.

Run by `make data-wheel` and the release workflow. Architecture and version of the pack's manifest
name the wheel. It holds one function, which says where its files lie, and asks for no version of
anything: `launcher_abi` in the manifest decides whether they fit. It never changes a pack.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

import wheel_zip
from pack_report import report
from packaging.version import InvalidVersion, Version

from hgemm_packs.errors import PackError
from hgemm_packs.pack.folder import (
    BLOB_NAME,
    BUNDLE_NAME,
    LICENSE_NAME,
    MANIFEST_NAME,
    REPORT_NAME,
    SIGNATURE_NAME,
    Pack,
)

LICENSE = Path(__file__).parents[1] / "LICENSE"
#: What PyPI takes without asking. The design's target is half of it.
MAX_BYTES = 100 << 20
#: These travel with a pack that has them; a wheel is attested by itself.
OPTIONAL = (BUNDLE_NAME, SIGNATURE_NAME)
ARCH = re.compile(r"sm_(\d+[af]?)")

INIT = '''"""The {arch} pack of hgemm_packs: data, found through the entry point below `folder`."""

from pathlib import Path


def folder() -> Path:
    """Where the pack's files lie."""
    return Path(__file__).parent
'''

METADATA = """\
Metadata-Version: 2.4
Name: {name}
Version: {version}
Summary: Kernels and selection table of hgemm_packs for {arch}: {devices}
Author: The hgemm_packs authors
License-Expression: {license}
Keywords: CUDA,GEMM,matmul
Classifier: Development Status :: 3 - Alpha
Classifier: Environment :: GPU :: NVIDIA CUDA
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: Python :: 3
Requires-Python: >=3.10
Requires-Dist: hgemm-packs
Description-Content-Type: text/markdown

"""

WHEEL = """\
Wheel-Version: 1.0
Generator: hgemm_packs data_wheel
Root-Is-Purelib: true
Tag: py3-none-any
"""


def _names_a_file(version: str) -> bool:
    """Whether it is a version as Python writes it, without the local part that a file name would
    have to escape; a manifest has no epochs."""
    try:
        found = Version(version)
    except InvalidVersion:
        return False
    return str(found) == version == found.public


def build(folder: Path, out: Path) -> Path:
    """Write the wheel of the pack in `folder` into `out` and return its path.

    Raises PackError for a pack that does not open (with its code), or that no wheel can carry: a
    version that is no Python version ("wheel_name"), or files over the limit ("wheel_size").
    """
    pack = Pack.open_verified(folder)
    manifest = pack.manifest
    pack.close()
    files = {name: (folder / name).read_bytes() for name in (MANIFEST_NAME, BLOB_NAME)}
    files |= {name: (folder / name).read_bytes() for name in OPTIONAL if (folder / name).is_file()}
    arch, version = ARCH.fullmatch(manifest.arch), manifest.pack.version
    devices = ", ".join(profile.name for profile in manifest.device_profiles)
    if arch is None or not _names_a_file(version):
        raise PackError("wheel_name", f"{manifest.arch} {version} cannot be a wheel's name")
    if not (devices + manifest.pack.license).isprintable():
        raise PackError("wheel_name", "a device's name or the licence cannot be in METADATA")
    module, text = f"hgemm_packs_sm{arch[1]}", report(manifest, pack.manifest_sha256)
    files |= {
        LICENSE_NAME: LICENSE.read_bytes(),
        REPORT_NAME: text.encode(),
        "__init__.py": INIT.format(arch=manifest.arch).encode(),
    }
    dist_info = f"{module}-{version}.dist-info"
    metadata = METADATA.format(
        name=module.replace("_", "-"),
        version=version,
        arch=manifest.arch,
        devices=devices,
        license=manifest.pack.license,
    )
    contents = {f"{module}/{name}": data for name, data in files.items()} | {
        f"{dist_info}/METADATA": (metadata + text).encode(),
        f"{dist_info}/WHEEL": WHEEL.encode(),
        f"{dist_info}/entry_points.txt": (
            f"[hgemm_packs.providers]\nsm{arch[1]} = {module}:folder\n".encode()
        ),
        f"{dist_info}/top_level.txt": f"{module}\n".encode(),
    }
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{module}-{version}-py3-none-any.whl"
    wheel_zip.write(path, contents, dist_info)
    size = path.stat().st_size
    if size > MAX_BYTES:
        path.unlink()
        raise PackError("wheel_size", f"{size} bytes, not at most {MAX_BYTES}")
    return path


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("pack", type=Path, help="pack directory, as hgemm-packs build writes it")
    parser.add_argument("--out", type=Path, default=Path("dist"), help="folder for the wheel")
    arguments = parser.parse_args()
    try:
        path = build(arguments.pack, arguments.out)
    except (PackError, OSError) as error:
        print(f"data_wheel: {error}", file=sys.stderr)
        return 2
    print(f"{path}  {path.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
