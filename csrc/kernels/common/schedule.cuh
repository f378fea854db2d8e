// Which output tile a CTA works on, and where a thread is in a ring of stages. Tiles are dealt to clusters in a banded
// raster order, so that CTAs that run together share rows of A and columns of B in L2.
#pragma once
#include "common/types.cuh"

struct TileIndex {
  int m, n;
};

// Position `t` in a grid of rows x columns: bands of `kGroup` columns, rows first inside a band.
// With kAlongN the roles of rows and columns are swapped.
template <int kGroup, bool kAlongN>
__device__ __forceinline__ TileIndex tile_at(int t, int rows, int columns) {
  const int inner = kAlongN ? columns : rows;
  const int outer = kAlongN ? rows : columns;
  const int band = t / (kGroup * inner);
  const int first = band * kGroup;
  const int width = min_of(kGroup, outer - first);
  const int within = t - first * inner;
  const int i = within / width;
  const int o = first + within - i * width;
  return kAlongN ? TileIndex{o, i} : TileIndex{i, o};
}

// A position in a ring of shared-memory stages: the slot and the parity its barriers are waited on.
template <int kStages>
struct RingCursor {
  int stage = 0;
  u32 parity = 0;

  __device__ __forceinline__ void advance() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
  // Past the stages that another consumer reads.
  __device__ __forceinline__ void skip(int count) {
    const int sum = stage + count;
    const int rounds = sum / kStages;
    stage = sum - rounds * kStages;
    parity ^= rounds & 1;
  }
};
