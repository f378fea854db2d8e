"""REPORT.md of a pack: what its manifest says, for people.

Called by `data_wheel`; the same text is what PyPI shows. It follows from the manifest alone, so the
same pack has the same report. It measures nothing and judges nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from hgemm_packs.manifest import Manifest, Row

TEMPLATE = """\
# {name} {version}

Kernels for half-precision matrix products on {devices} (`{arch}`), with the table that says which
problem gets one. `hgemm-packs` finds this package by itself; every other problem, and every other
GPU, runs torch's own matmul.

| | |
| --- | --- |
| kernels | {kernels} ({megabytes:.1f} MB) |
| problems measured | {rows} |
| of them with a kernel | {wins} |
| rule | {rule}; noise floor {floor:.2%} |
| measured against | torch {torch}, cuBLAS {cublas}, driver {driver} |
| protocol | {protocol} |
| needs | launcher ABI {abi}, CUDA driver API {min_driver} or newer |
| compiled by | NVRTC {nvrtc} |
| generator | {generator} |
| made | {created} |
| sha256 of manifest.json | `{manifest_sha256}` |
| sha256 of kernels.bin | `{blob_sha256}` |

Where there is a kernel, over torch, geometric means; `at least` is the smallest lower 95% bound:

| problems | number | caches hot | caches cold | at least |
| --- | --- | --- | --- | --- |
{groups}

A cubin is native code for the GPU: it can read and write all memory that its process has there.
Hashes and signatures say who made it, and nothing about what it does.
"""


def report(manifest: Manifest, manifest_sha256: str) -> str:
    """The page of a pack whose manifest, as a file, has this sha256."""
    wins = [row for row in manifest.table if row.kernel and manifest.policy.clears(row)]
    groups = sorted({(row.layout, row.dtype) for row in wins})
    lines = [
        _line(", ".join(group), [row for row in wins if (row.layout, row.dtype) == group])
        for group in groups
    ]
    made = manifest.generator
    return TEMPLATE.format(
        name=manifest.pack.name,
        version=manifest.pack.version,
        devices=", ".join(profile.name for profile in manifest.device_profiles),
        arch=manifest.arch,
        kernels=len(manifest.kernels),
        megabytes=manifest.blob.bytes / 1e6,
        rows=len(manifest.table),
        wins=len(wins),
        rule=manifest.policy.rule,
        floor=manifest.policy.noise_floor,
        torch=manifest.baseline.torch,
        cublas=manifest.baseline.cublas,
        driver=manifest.baseline.driver,
        protocol=manifest.baseline.protocol,
        abi=manifest.launcher_abi,
        min_driver=manifest.min_driver,
        nvrtc=manifest.toolchain.nvrtc,
        generator=f"{made.version}, commit {made.commit}{' and changes' if made.dirty else ''}",
        created=manifest.pack.created,
        manifest_sha256=manifest_sha256,
        blob_sha256=manifest.blob.sha256,
        groups="\n".join(lines + ([_line("all", wins)] if wins else [])),
    )


def _line(name: str, rows: Sequence[Row]) -> str:
    hot = _mean([row.hot.speedup for row in rows])
    cold = _mean([row.cold.speedup for row in rows])
    least = min(min(row.hot.lcb, row.cold.lcb) for row in rows)
    return f"| {name} | {len(rows)} | {hot:.3f}x | {cold:.3f}x | {least:.3f}x |"


def _mean(ratios: Sequence[float]) -> float:
    """Geometric: of ratios, no other mean is the same seen from both sides."""
    return math.exp(math.fsum(map(math.log, ratios)) / len(ratios))
