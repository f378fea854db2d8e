"""Where compiled kernels and what is known of them are kept, and the one way to write there.

Used by the build and the census. What is here can be deleted at any time.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import platformdirs


def cache_root() -> Path:
    """$HGEMM_PACKS_CACHE or the platform's cache folder, below it `v1`."""
    root = os.environ.get("HGEMM_PACKS_CACHE") or platformdirs.user_cache_dir("hgemm_packs")
    return Path(root) / "v1"


def cache_dir() -> Path:
    """Folder of compiled kernels."""
    return cache_root() / "build"


def ptx_dir() -> Path:
    """Folder of the PTX of kernels that the data-flow gate has seen."""
    return cache_root() / "ptx"


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file in one step: a killed process leaves no half entry."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        try:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise
