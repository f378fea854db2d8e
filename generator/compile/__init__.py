"""Genomes to cubins, cubins to packs, and what a cubin says of itself. Needs no GPU."""
