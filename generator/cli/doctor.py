"""What this machine lacks for generating a pack, and how to mend it.

Called by `hgemm-packs generate doctor`. Looks, and changes nothing.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from hgemm_packs.generator.compile.cache import cache_dir
from hgemm_packs.generator.compile.compiler import (
    ARCH,
    MIN_DRIVER,
    NVRTC_PIN,
    BuildError,
    build_one,
)
from hgemm_packs.generator.core.space import catalogue
from hgemm_packs.problem import cuda_of

#: The first release of torch that hands tensors to C without a call of Python.
MIN_TORCH = (2, 10)
#: Room for the build cache of a long search: thousands of cubins of 20 kB.
MIN_FREE_BYTES = 2 << 30


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at. `needed` says whether a search can do without it."""

    name: str
    ok: bool
    detail: str
    remedy: str = ""
    needed: bool = True


def _version(package: str, pin: str, remedy: str, needed: bool = True) -> Check:
    try:
        found = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return Check(package, False, "not installed", remedy, needed)
    ok = not pin or Version(found) == Version(pin)
    return Check(package, ok, found, remedy, needed)


def _compiler() -> Check:
    choice = catalogue("nt", "f16")[0]
    try:
        built = build_one(choice.family, choice.genome)
    except (BuildError, ImportError) as error:
        words = str(error).strip().splitlines()[0]
        return Check("compiler", False, words, "pip install 'hgemm-packs[cli,generator]'")
    return Check("compiler", True, f"{choice.name}: {built.entry_fields['regs']} registers")


def _torch() -> Check:
    newer = "see pytorch.org, torch 2.10 or newer"
    try:
        import torch
    except ImportError:
        return Check("torch", False, "not installed", newer)
    detail = f"{torch.__version__}, CUDA {torch.version.cuda or 'none'}"
    if Version(torch.__version__).release < MIN_TORCH:  # of 2.10.0a0, too, which has it
        return Check("torch", False, detail, newer)
    return Check("torch", torch.cuda.is_available(), detail, "a CUDA build of torch and a GPU")


def _gpus() -> Iterator[Check]:
    import torch

    from hgemm_packs import launcher

    for index in range(torch.cuda.device_count()):
        info = launcher.device_info(index)
        free, total = torch.cuda.mem_get_info(index)
        detail = f"{info.name}, {info.arch}, driver for {cuda_of(info.driver)}"
        detail += f", {free / 1e9:.0f} of {total / 1e9:.0f} GB free"
        fits = info.arch == ARCH and info.driver >= MIN_DRIVER
        remedy = f"the kernels are for {ARCH} and a driver for CUDA {MIN_DRIVER // 1000} or newer"
        yield Check(f"GPU {index}", fits, detail, remedy)
        yield Check(
            f"GPU {index} idle",
            free > 0.9 * total,
            f"{(total - free) / 1e9:.1f} GB in use",
            "timings need the GPU to themselves: end other processes",
            needed=False,
        )


def _disk(folder: Path) -> Check:
    existing = next(p for p in (folder, *folder.parents) if p.exists())
    free = shutil.disk_usage(existing).free
    ok = free > MIN_FREE_BYTES and os.access(existing, os.W_OK)
    return Check("build cache", ok, f"{folder}: {free / 1e9:.0f} GB free", "set HGEMM_PACKS_CACHE")


def checks(tick: Callable[[str], None] = lambda name: None) -> list[Check]:
    """Look at everything a search needs; `tick(name)` is called before each look."""
    extra = "pip install 'hgemm-packs[cli,generator]'"
    found: list[Check] = []
    tick("packages")
    found.append(_version("nvidia-cuda-nvrtc", NVRTC_PIN, extra))
    found += [_version(p, "", extra) for p in ("cuda-core", "numpy", "scikit-learn")]
    found += [_version(p, "", extra) for p in ("tree-sitter-cuda", "nvidia-cuda-nvdisasm")]
    found.append(_version("ray", "", "pip install 'hgemm-packs[ray]'", needed=False))
    tick("compiler")
    found.append(_compiler())
    found.append(_disk(cache_dir()))
    wal = sqlite3.sqlite_version_info >= (3, 7, 0)
    found.append(Check("sqlite", wal, sqlite3.sqlite_version, "3.7 or newer, for WAL"))
    tick("GPU")
    torch = _torch()
    found.append(torch)
    if torch.ok:
        found += _gpus()
    sanitizer = shutil.which("compute-sanitizer")
    remedy = "comes with the CUDA toolkit; without it the sanitizer gate is skipped and said so"
    found.append(
        Check("compute-sanitizer", sanitizer is not None, sanitizer or "absent", remedy, False)
    )
    return found
