"""Which kernels of a table are launched with programmatic dependent launch: those that it made
faster, and nowhere slower, where benchmarks/pdl.py measured them.

Called by the CLI when it writes a table. It measures nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from statistics import geometric_mean, median
from typing import Any

from hgemm_packs.generator.packer import SourceManifest

LEAST = 0.995  # plain over dependent time that still is no loss: A/A of short calls


def faster(lines: Iterable[Mapping[str, Any]]) -> set[str]:
    """Names of the kernels that no measurement found slower, hot or cold, or wrong, and that gain
    with hot caches in the mean."""
    hot: dict[str, list[float]] = {}
    out: set[str] = set()
    for line in lines:
        name = line["kernel"]
        gains = {
            protocol: median(
                plain / pdl for plain, pdl in zip(times["plain"], times["pdl"], strict=True)
            )
            for protocol in ("hot", "cold")
            if (times := line.get(protocol))
        }
        if line.get("wrong") or min(gains.values(), default=0.0) < LEAST:
            out.add(name)
        else:
            hot.setdefault(name, []).append(gains.get("hot", 1.0))
    return {name for name, gains in hot.items() if name not in out and geometric_mean(gains) > 1.0}


def launched(source: SourceManifest, lines: Iterable[Mapping[str, Any]]) -> SourceManifest:
    """`source` with those kernels marked and no others."""
    names = faster(lines)
    kernels = (replace(kernel, pdl=kernel.name in names) for kernel in source.kernels)
    return replace(source, kernels=tuple(kernels))
