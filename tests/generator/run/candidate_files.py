"""A kernel written by hand: its source and record."""

from __future__ import annotations

from hgemm_packs.problem import Problem

PROBLEM = Problem(64, 64, 64, "nn", "f16")
SOURCE = """#include "common/mma.cuh"

extern "C" __global__ void __launch_bounds__(32) mine(
    const u16* a, const u16* b, u16* c, int m, int n, int k, int lda, int ldb, int ldc) {
  float acc[4] = {};
  for (int p = 0; p < k; p += 16) mma16816(acc, a[p], a[p + 1], a[p + 2], a[p + 3], b[p], b[p + 1]);
  if (threadIdx.x < n) c[threadIdx.x] = (u16)pack2(acc[0], acc[1]);
}
"""
