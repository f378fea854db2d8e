"""How much of K a kernel's pipeline covers, as its record tells it."""

from __future__ import annotations

from hgemm_packs.pack.manifest import KernelEntry


def ring_depth(entry: KernelEntry) -> int:
    """K in elements that one pass over the kernel's pipeline covers, over all CTAs that share K:
    its ring, its slice, or one round of loads."""
    genome, parts = entry.genome, entry.cluster[2] * entry.grid.slices
    for gene in ("k_slice", "k"):
        if gene in genome:
            return int(genome[gene]) * parts
    stages = int(genome.get("stages", 1))
    if "tile_k" in genome or "producers" in genome:
        return stages * int(genome.get("tile_k", 64)) * parts
    step = 16 if entry.family == "sm90_elements" else 32
    return step * int(genome.get("warps_k", 1)) * int(genome.get("unroll", 1)) * stages * parts
