"""Sizes by coverage: what a kernel decides by M, N, K, strides and tile indices."""
