// Which output tile a CTA works on, and where a thread is in a ring of stages. Tiles are dealt to clusters in a banded
// raster order, so that CTAs that run together share rows of A and columns of B in L2.
#pragma once
#include "common/types.cuh"

struct TileIndex {
  int m, n;
};

// a / b for 0 <= a < 2^20 and 0 < b, for what stands before the first load: a product with the approximate reciprocal,
// five instructions where a division has forty that wait for each other. It is exact: with t = a + 1/2 the distance of
// t / b from an integer is at least 0.5 / b, its error below t / b * 2^-22. Adding 2^23 rounded towards zero leaves the
// integer part in the low bits.
__device__ __forceinline__ int quick_quotient(int a, int b) {
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"((float)b));
  const float quotient = __fmaf_rn((float)a, inverse, 0.5f * inverse);
  return __float_as_int(__fadd_rz(quotient, 8388608.0f)) & 0x7FFFFF;
}

// The same for any a, where larger ones are no hurry.
template <bool kQuick>
__device__ __forceinline__ int quotient(int a, int b) {
  return kQuick && a < 1 << 20 ? quick_quotient(a, b) : a / b;
}

// Position `t` in a grid of rows x columns: bands of `kGroup` columns, rows first inside a band.
// With kAlongN the roles of rows and columns are swapped.
template <int kGroup, bool kAlongN, bool kQuick = false>
__device__ __forceinline__ TileIndex tile_at(int t, int rows, int columns) {
  const int inner = kAlongN ? columns : rows;
  const int outer = kAlongN ? rows : columns;
  const int band = quotient<kQuick>(t, kGroup * inner);
  const int first = band * kGroup;
  const int width = min_of(kGroup, outer - first);
  const int within = t - first * inner;
  const int i = kQuick && kGroup == 1 ? within : quotient<kQuick>(within, width);
  const int o = first + within - i * width;
  return kAlongN ? TileIndex{o, i} : TileIndex{i, o};
}

// The k-tiles of CTA `part` of the kParts that share a tile by K.
template <int kTileK, int kParts>
struct KRange {
  int begin, end;

  __device__ __forceinline__ KRange(int k, int part) {
    const int tiles = ceil_div(k, kTileK);
    begin = tiles * part / kParts;
    end = tiles * (part + 1) / kParts;
  }
  __device__ __forceinline__ int count() const { return end - begin; }
};

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
