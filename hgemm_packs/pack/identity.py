"""What a kernel is: its cubin, and how the launcher launches it.

Whoever keeps something about a kernel keeps it by `identity`: `dispatch` what is loaded, `select`
and `selftest` what failed, the generator what was measured. Nothing here loads or knows a device.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from .manifest import LAUNCH_RULES, KernelEntry


def launch_record(entry: KernelEntry) -> dict[str, Any]:
    """All that the launcher is told of a kernel beside its cubin, by the names of `_C.load`."""
    return {
        "symbol": entry.symbol,
        "param_layout": entry.param_layout,
        "param_sizes": tuple(entry.param_sizes),
        "maps": tuple((s.box, s.swizzle, s.row_group, s.l2_promotion) for s in entry.tma),
        "block": entry.block,
        "cluster": entry.cluster,
        "tile": (entry.grid.tile_m, entry.grid.tile_n),
        "slices": entry.grid.slices,
        "persistent": entry.grid.persistent,
        "cooperative": entry.cooperative,
        "reads_ahead": entry.reads_ahead,
        "triggers_early": entry.triggers_early,
        "smem_bytes": entry.smem_bytes,
        "workspace_bytes": entry.workspace_bytes,
        "layout": entry.layout,
        "dtype": entry.dtype,
        "align": entry.align,
        "dims": tuple((r.min, r.max, r.multiple_of) for r in (entry.m, entry.n, entry.k)),
        "epilogue": entry.epilogue,
    }


def identity(entry: KernelEntry) -> str:
    """The sha256 over a kernel's cubin, its launch record and the launcher's rules: equal for two
    entries that run alike, whatever pack they are of. Made when it is asked for (50 us): a pack has
    thousands of kernels, and a process asks about a few."""
    record = launch_record(entry)
    if entry.epilogue == "none":
        del record["epilogue"]  # as there was none when plain kernels were measured
    said = {"rules": LAUNCH_RULES, "cubin": entry.id, "record": record}
    text = json.dumps(said, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
