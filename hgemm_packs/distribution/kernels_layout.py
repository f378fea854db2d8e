"""A pack in the layout that Hugging Face's `kernels` library loads, and what it runs when loaded.

`export` is called by the CLI; `register` by the small module that `export` writes beside the pack.
The layout is one build variant for every backend, since a pack's kernels are data and the host code
is hgemm_packs itself; nothing here is fetched, and no file of a pack is changed.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
from pathlib import Path

from ..errors import PackError
from ..pack.folder import BLOB_NAME, FILES, MANIFEST_NAME, Pack, read_file
from ..pack.manifest import MAX_MANIFEST_BYTES
from ..pack.manifest_reader import Manifest
from ..pack.receipts import has_receipt
from . import cache, packs, trust

#: The one build variant: Python without a compiled part, for any backend. Elsewhere than on the
#: pack's GPU it is torch's own matmul.
VARIANT = "torch-universal"

_INIT = '''"""{name} {version}: measured matmul kernels for {arch}, run by hgemm_packs."""

from pathlib import Path

try:
    from hgemm_packs import matmul
    from hgemm_packs.distribution import kernels_layout
except ImportError as error:
    raise ImportError(
        "this kernel is data for hgemm_packs, which is not installed or too old: "
        "pip install --upgrade hgemm-packs"
    ) from error

pack = kernels_layout.register(Path(__file__).parent, "{sha256}")

from . import layers

__all__ = ["layers", "matmul", "pack"]
'''
_LAYERS = '''"""Layers that `kernels.kernelize` puts in place of torch's."""

from hgemm_packs.nn import StatelessLinear as Linear

__all__ = ["Linear"]
'''


def export(
    folder: str | os.PathLike[str], out: str | os.PathLike[str], *, version: int = 1
) -> Path:
    """Write the pack in `folder` as a kernel repository to `out`; returns the variant's directory.

    `version` is the repository's: users ask for `get_kernel(repo, version=1)`, which is branch v1.
    The same pack gives the same bytes. Raises PackError for a bad pack, FileExistsError when the
    variant is there already.
    """
    pack = Pack.open_verified(folder)
    pack.close()
    manifest, sha = pack.manifest, pack.manifest_sha256
    target = Path(out) / "build" / VARIANT
    target.mkdir(parents=True)
    for name in FILES:
        if name in (MANIFEST_NAME, BLOB_NAME) or (pack.path / name).is_file():
            shutil.copyfile(pack.path / name, target / name)
    info = manifest.pack
    init = _INIT.format(name=info.name, version=info.version, arch=manifest.arch, sha256=sha)
    (target / "__init__.py").write_text(init)
    (target / "layers.py").write_text(_LAYERS)
    metadata = _metadata(manifest, sha, version) | {"digest": _digest(target)}
    (target / "metadata.json").write_text(json.dumps(metadata, indent=2, sort_keys=True) + "\n")
    return target


def _metadata(manifest: Manifest, sha: str, version: int) -> dict[str, object]:
    """What `kernels` wants to know. `id` is the module's name in the process, so that two packs do
    not meet; `archs` lets `get_kernel` refuse another GPU aloud."""
    name = re.sub(r"[^a-z0-9]+", "-", manifest.pack.name.lower()).strip("-")
    if not re.match("[a-z].", name):
        name = f"pack-{name}"
    capability = manifest.arch.removeprefix("sm_")
    digits = capability.rstrip("af")
    return {
        "name": name,
        "id": f"_{name.replace('-', '_')}_{sha[:16]}",
        "version": version,
        "license": manifest.pack.license,
        "python-depends": [],
        "backend": {"type": "cuda", "archs": [f"{digits[:-1]}.{capability[len(digits) - 1 :]}"]},
    }


def _digest(target: Path) -> dict[str, object]:
    files = {
        path.name: base64.b64encode(hashlib.sha256(path.read_bytes()).digest()).decode()
        for path in sorted(target.iterdir())
    }
    return {"algorithm": "sha256", "files": files}


def register(folder: Path, manifest_sha256: str) -> Pack:
    """Use the pack that lies beside a module of `export` ahead of all others in this process.

    The Hub's cache keeps links where a pack has files, and no link is ever followed to a kernel: a
    pack of links is copied into the cache of packs, once. Who runs the module, which names the
    manifest's hash, has allowed that hash.

    Raises PackError for another manifest, CacheError, OSError. What is damaged is refused when it
    is used.
    """
    if (folder / MANIFEST_NAME).is_symlink() or (folder / BLOB_NAME).is_symlink():
        return packs.use(_copy_folder(folder, manifest_sha256))
    found = hashlib.sha256(read_file(folder, MANIFEST_NAME, MAX_MANIFEST_BYTES)).hexdigest()
    if found != manifest_sha256:
        detail = f"sha256 of {MANIFEST_NAME} is {found}, not {manifest_sha256}"
        raise PackError("manifest_hash", detail)
    return packs.use(folder)


def _copy_folder(folder: Path, manifest_sha256: str) -> Path:
    root = cache.root()

    def receipt(place: Path) -> trust.Receipt:
        return trust.verify(place, allow=[f"sha256:{manifest_sha256}"])

    def fill(temp: Path) -> None:
        for name in (MANIFEST_NAME, BLOB_NAME):
            shutil.copyfile(folder / name, temp / name)
        trust.write_receipt(root, receipt(temp))

    place = cache.add(manifest_sha256, fill, root)
    if not has_receipt(root, manifest_sha256):
        trust.write_receipt(root, receipt(place))
    cache.touch(place)
    return place
