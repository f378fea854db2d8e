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


#: By `id` of an entry, which is kept so that no other one gets that id; of a process that goes
#: through packs only the latest.
_made: dict[int, tuple[KernelEntry, str]] = {}
_MOST_MADE = 4096


def identity(entry: KernelEntry) -> str:
    """The sha256 over a kernel's cubin, its launch record and the launcher's rules: equal for two
    entries that run alike, whatever pack they are of. Made when it is asked for (50 us), and once:
    a pack has thousands of kernels, and a process asks often about a few."""
    known = _made.get(id(entry))
    if known is not None and known[0] is entry:
        return known[1]
    record = launch_record(entry)
    if entry.epilogue == "none":
        del record["epilogue"]  # as there was none when plain kernels were measured
    said = {"rules": LAUNCH_RULES, "cubin": entry.id, "record": record}
    text = json.dumps(said, sort_keys=True, separators=(",", ":"))
    name = hashlib.sha256(text.encode()).hexdigest()
    if len(_made) >= _MOST_MADE:
        _made.clear()
    _made[id(entry)] = entry, name
    return name
