// What a kernel computes beyond the product, in fp32 and before it rounds. HGP_ACTIVATION names one of the functions
// below: an addend of C's type, then the function; the addend is the kernel's last parameter, a bias [N], or with
// HGP_RESIDUAL a matrix [M,N], packed. HGP_GATE names one for half of the columns: function(gate) * up; of each 16
// columns of the product, as the tile has them, the first 8 are of the gate, and C has half as many.
// Without either nothing here is compiled. A new epilogue is a function here and a line of
// generator/families/computed.py.
// An addend is read behind the wait for the grid ahead, by plain loads, and never beyond row M - 1 or column N - 1.
#pragma once
#include "common/ptx.cuh"

#ifndef HGP_RESIDUAL
#define HGP_RESIDUAL 0
#endif

#if defined(HGP_ACTIVATION) || defined(HGP_GATE)
__device__ __forceinline__ float widen(u16 v) {
#if HGP_BF16
  return __uint_as_float((u32)v << 16);
#else
  float out;
  asm("cvt.f32.f16 %0, %1;" : "=f"(out) : "h"(v));
  return out;
#endif
}

__device__ __forceinline__ float identity(float v) { return v; }
__device__ __forceinline__ float relu(float v) { return v < 0.0f ? 0.0f : v; }  // NaN stays
__device__ __forceinline__ float gelu(float v) { return 0.5f * v * erfcf(-0.70710678f * v); }
__device__ __forceinline__ float gelu_tanh(float v) {
  const float x = 0.79788456f * (v + 0.044715f * v * v * v);
  return __fdividef(v, 1.0f + expf(-2.0f * x));  // 1 + tanh(x) = 2 / (1 + exp(-2x))
}
__device__ __forceinline__ float silu(float v) { return __fdividef(v, 1.0f + expf(-v)); }

#endif

#ifdef HGP_ACTIVATION
#define HGP_ADDEND , const u16* addend
#define HGP_GIVE_ADDEND , addend
#define HGP_FINISH(acc, row, column) finish_block<HGP_EPILOGUE_GROUPED>(acc, addend, row, column, m, n)

__device__ __forceinline__ float finish_sum(float sum, float more) { return HGP_ACTIVATION(sum + more); }

// kWidth neighbouring values, aligned to as many; 0 from column `n` on, which kWidth divides unless it is odd.
template <int kWidth>
struct Addend {
  float v[kWidth];

  // Of a bias, or of a row of a residual.
  __device__ __forceinline__ Addend(const u16* line, int column, int n) {
    u16 words[kWidth] = {};
    if (column < n) {
      if constexpr (kWidth == 8) {
        *reinterpret_cast<uint4*>(words) = *reinterpret_cast<const uint4*>(line + column);
      } else if constexpr (kWidth == 4) {
        *reinterpret_cast<uint2*>(words) = *reinterpret_cast<const uint2*>(line + column);
      } else if constexpr (kWidth == 2) {
        *reinterpret_cast<u32*>(words) = *reinterpret_cast<const u32*>(line + column);
      } else {
        words[0] = line[column];
      }
    }
#pragma unroll
    for (int i = 0; i < kWidth; ++i) v[i] = widen(words[i]);
  }
};

// kWidth neighbouring columns of a row below M.
template <int kWidth>
__device__ __forceinline__ void finish_row(float (&v)[kWidth], const u16* addend, int row, int column, int n) {
  const Addend<kWidth> b(HGP_RESIDUAL ? addend + (i64)row * n : addend, column, n);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) v[i] = finish_sum(v[i], b.v[i]);
}

// A thread's accumulators of one of its two rows of an m64 block, to which the residual's row `line` is added: see
// finish_block.
template <bool kGrouped, int kCount>
__device__ __forceinline__ void finish_line(float (&acc)[kCount], const u16* line, int half, int column, int n) {
  constexpr int kWidth = kGrouped ? 8 : kCount == 1 ? 1 : 2;
  constexpr int kPitch = kGrouped ? 32 : 8;                 // columns from one block to the next
  constexpr int kHeld = kGrouped ? 16 : min_of(kCount, 4);  // of a block, with the other row
#pragma unroll
  for (int block = 0; block < kCount / kHeld; ++block) {
    const Addend<kWidth> b(line, column + block * kPitch + threadIdx.x % 4 * (kGrouped ? 8 : 2), n);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      float& v = acc[block * kHeld + half * 2 + (kGrouped ? i % 4 * 4 + i / 4 : i)];
      v = finish_sum(v, b.v[i]);
    }
  }
}

// A thread's accumulators of some columns of an m64 block, from `row` and `column` on: 4 of each 8 columns, of which 2
// are of one row, or with kGrouped 16 of each 32 (see GroupedEpilogue). Fewer than 4: the 2 of one row, or the first of
// these.
template <bool kGrouped, int kCount>
__device__ __forceinline__ void finish_block(float (&acc)[kCount], const u16* addend, int row, int column, int m,
                                             int n) {
  const int lane = threadIdx.x % 4;
  if constexpr (HGP_RESIDUAL) {
    const int first = row + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
#pragma unroll
    for (int half = 0; half < (kCount < 4 ? 1 : 2); ++half) {
      const int below = first + half * 8;
      finish_line<kGrouped>(acc, addend + (i64)below * n, half, column, below < m ? n : 0);
    }
  } else if constexpr (kGrouped) {
#pragma unroll
    for (int group = 0; group < kCount / 16; ++group) {
      const Addend<8> b(addend, column + group * 32 + lane * 8, n);
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        float& v = acc[group * 16 + i];
        v = finish_sum(v, b.v[i % 2 * 4 + i / 4]);
      }
    }
  } else {
    constexpr int kRow = kCount == 1 ? 1 : 2;
    constexpr int kHeld = kCount < 4 ? kCount : 4;
#pragma unroll
    for (int block = 0; block < kCount / kHeld; ++block) {
      const Addend<kRow> b(addend, column + block * 8 + lane * 2, n);
#pragma unroll
      for (int i = 0; i < kHeld; ++i) {
        float& v = acc[block * kHeld + i];
        v = finish_sum(v, b.v[i % kRow]);
      }
    }
  }
}
#else
#define HGP_ADDEND
#define HGP_GIVE_ADDEND
#endif

// From the accumulators `acc` of a block of rows to what is stored of them, HGP_FINISHED(acc), and from columns of the
// product to those of C.
#ifdef HGP_GATE
template <int kCount>
__device__ __forceinline__ void gate_block(const float (&acc)[kCount], float (&gated)[kCount / 2]) {
  static_assert(kCount % 8 == 0, "16 columns at a time");
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) {
    const float* v = &acc[i / 4 * 8 + i % 4];
    gated[i] = HGP_GATE(v[0]) * v[4];
  }
}
#define HGP_FINISH(acc, row, column)             \
  float gated[sizeof(acc) / sizeof(acc[0]) / 2]; \
  gate_block(acc, gated)
#define HGP_FINISHED(acc) gated
#define HGP_OF_C(columns) ((columns) / 2)
#else
#ifndef HGP_ACTIVATION
#define HGP_FINISH(acc, row, column)
#endif
#define HGP_FINISHED(acc) acc
#define HGP_OF_C(columns) (columns)
#endif
