"""The table of this machine as a pack in the standard format, and the way it gets its place.

Called by `session`, which holds the lock of the folder. Kernels are copied, so that the table
outlives the packs that they came from; those of stale rows are kept for when these are measured
again. Whoever reads the pack checks it like any other.
"""

from __future__ import annotations

import datetime
import hashlib
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..measure.evidence import RULE
from ..pack.folder import MANIFEST_NAME
from ..pack.local.place import Pointer, point
from ..pack.manifest import (
    LAUNCHER_ABI,
    SCHEMA,
    Baseline,
    DeviceProfile,
    KernelEntry,
    PackInfo,
    WinPolicy,
)
from ..pack.manifest_reader import Manifest
from ..pack.writer import add_cubin, plain, write_folder
from ..profiles.names import of_machine
from .candidates import Candidate
from .journal import Run
from .judge import Judged

PROTOCOL = "hgemm-packs tune: CUDA-graph replay, hot and cold, interleaved, N(0,1), fp32 accumulate"


def write(
    folder: Path, run: Run, judged: Judged, kernels: Iterable[Candidate], first: Manifest
) -> None:
    """Write the pack of what stands, with these kernels, and let it count from now on; the problems
    whose kernel is not among them have no row. `first` is the manifest of a pack of theirs. Raises
    PackError, OSError."""
    for left in folder.glob(".fresh.*"):  # by a process that was killed while it wrote
        shutil.rmtree(left, ignore_errors=True)
    made = {each.entry.id: each for each in kernels}
    rows = [
        standing.row
        for standing in judged.standing.values()
        if standing.row.kernel is None or standing.row.kernel in made
    ]
    blob, entries, names = bytearray(), [], set()
    for id_, each in sorted(made.items()):
        name = each.entry.name if each.entry.name not in names else f"{id_[:16]}.{each.entry.name}"
        names.add(name)
        place = add_cubin(blob, each.pack.image(each.entry))
        entries.append(_fields(each.entry, name) | place)
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    conditions = run.conditions
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "pack": PackInfo(of_machine(run.profile), now[:10].replace("-", "."), "Apache-2.0", now),
        "launcher_abi": LAUNCHER_ABI,
        "arch": run.arch,
        "device_profiles": [profile_of(run)],
        "min_driver": max(
            [first.min_driver, *(each.pack.manifest.min_driver for each in made.values())]
        ),
        "toolchain": first.toolchain,
        "generator": first.generator,
        "baseline": Baseline(conditions.torch, conditions.cublas, conditions.driver, PROTOCOL),
        "policy": WinPolicy(judged.policy.noise_floor, RULE),
        "table": sorted(rows, key=lambda row: (row.profile, row.key)),
    }
    fresh = folder / "fresh"
    write_folder(fresh, plain(document) | {"kernels": entries}, bytes(blob))
    sha256 = hashlib.sha256((fresh / MANIFEST_NAME).read_bytes()).hexdigest()
    if not (folder / sha256).exists():
        fresh.rename(folder / sha256)
    point(folder, Pointer(sha256, conditions))


def profile_of(run: Run) -> DeviceProfile:
    """The profile that was measured."""
    facts = run.theoretical_mem_bw_gbps, run.power_limit_w
    return DeviceProfile(run.profile, run.sm_count, run.l2_bytes, run.gbps, *facts)


def _fields(entry: KernelEntry, name: str) -> dict[str, Any]:
    """A kernel as a manifest has it, but for its place."""
    fields: dict[str, Any] = plain(entry)
    fields["dims"] = {dim: fields.pop(dim) for dim in ("m", "n", "k")}
    fields["align"] = dict(zip("abc", fields["align"], strict=True))
    return fields | {"name": name}
