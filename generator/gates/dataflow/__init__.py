"""The data-flow gate: where bits of A, B and of their sums may go, followed through PTX."""
