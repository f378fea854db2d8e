"""How much of K a kernel's pipeline covers, as its record tells it."""

from __future__ import annotations

from hgemm_packs.generator.gates.coverage.problems import ring_of
from hgemm_packs.pack.manifest import KernelEntry


def ring_depth(entry: KernelEntry) -> int:
    """K in elements that one pass over the kernel's pipeline covers, over all CTAs that share K:
    its ring, its slice, or one round of loads."""
    fields = {
        "family": entry.family,
        "genome": entry.genome,
        "cluster": entry.cluster,
        "grid": {"slices": entry.grid.slices},
    }
    return ring_of(fields)[1]
