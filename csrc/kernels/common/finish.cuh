// What a kernel computes beyond the product, in fp32 and before it rounds: a bias of C's type for each column, then an
// activation. HGP_ACTIVATION names one of the functions below; without it nothing here is compiled, and a kernel's last
// parameter is not the bias. A new epilogue is a function here and a line of generator/families/computed.py.
// The bias is read behind the wait for the grid ahead, by plain loads, and never beyond column N - 1.
#pragma once
#include "common/ptx.cuh"

#ifdef HGP_ACTIVATION
#define HGP_BIAS , const u16* bias
#define HGP_GIVE_BIAS , bias
#define HGP_FINISH(acc, column) finish_block<HGP_EPILOGUE_GROUPED>(acc, bias, column, n)

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

__device__ __forceinline__ float finish_sum(float sum, float bias) { return HGP_ACTIVATION(sum + bias); }

// kWidth neighbouring values, aligned to as many; 0 from column `n` on, which kWidth divides unless it is odd.
template <int kWidth>
struct Bias {
  float v[kWidth];

  __device__ __forceinline__ Bias(const u16* bias, int column, int n) {
    u16 words[kWidth] = {};
    if (column < n) {
      if constexpr (kWidth == 8) {
        *reinterpret_cast<uint4*>(words) = *reinterpret_cast<const uint4*>(bias + column);
      } else if constexpr (kWidth == 4) {
        *reinterpret_cast<uint2*>(words) = *reinterpret_cast<const uint2*>(bias + column);
      } else if constexpr (kWidth == 2) {
        *reinterpret_cast<u32*>(words) = *reinterpret_cast<const u32*>(bias + column);
      } else {
        words[0] = bias[column];
      }
    }
#pragma unroll
    for (int i = 0; i < kWidth; ++i) v[i] = widen(words[i]);
  }
};

// kWidth neighbouring columns of a row.
template <int kWidth>
__device__ __forceinline__ void finish_row(float (&v)[kWidth], const u16* bias, int column, int n) {
  const Bias<kWidth> b(bias, column, n);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) v[i] = finish_sum(v[i], b.v[i]);
}

// A thread's accumulators of some columns of an m64 block, from `column` on: 4 of each 8 columns, of which 2 are of
// one row, or with kGrouped 16 of each 32 (see GroupedEpilogue). Fewer than 4: the 2 of one row, or the first of these.
template <bool kGrouped, int kCount>
__device__ __forceinline__ void finish_block(float (&acc)[kCount], const u16* bias, int column, int n) {
  const int lane = threadIdx.x % 4;
  if constexpr (kGrouped) {
#pragma unroll
    for (int group = 0; group < kCount / 16; ++group) {
      const Bias<8> b(bias, column + group * 32 + lane * 8, n);
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
      const Bias<kRow> b(bias, column + block * 8 + lane * 2, n);
#pragma unroll
      for (int i = 0; i < kHeld; ++i) {
        float& v = acc[block * kHeld + i];
        v = finish_sum(v, b.v[i % kRow]);
      }
    }
  }
}
#else
#define HGP_BIAS
#define HGP_GIVE_BIAS
#define HGP_FINISH(acc, column)
#endif
