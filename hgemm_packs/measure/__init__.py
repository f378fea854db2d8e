"""Timing that benchmarks and the generator share. Never in a call."""
