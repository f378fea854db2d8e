"""First use of a kernel against torch, opt-in by HGEMM_PACKS_SELFTEST=1; the quarantine of kernels.

Called by `launcher` after loading a kernel, and by `select` for what earlier processes found out.
"""

from __future__ import annotations

from pathlib import Path


def quarantined(root: Path | None) -> dict[str, str]:
    """Kernel id -> reason, as earlier processes left them in v1/quarantine below the cache."""
    raise NotImplementedError


def keep_out(root: Path | None, kernel_id: str, reason: str) -> None:
    """Remember for later processes that this kernel failed; a full or read-only disk is logged."""
    raise NotImplementedError
