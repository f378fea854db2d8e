// Beyond 40 steps of K the warp that copies takes a stage that two warps may still read.
#include "common/ptx.cuh"

constexpr int kStages = 3, kRows = 64, kColumns = 32, kPitchA = 24, kPitchB = 40, kThreads = 160;

__device__ __forceinline__ void copy16(u16* to, const u16* from, int bytes) {
  const u32 address = (u32)__cvta_generic_to_shared(to);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(bytes) : "memory");
}
__device__ __forceinline__ void matrices4(u32 (&to)[4], const u16* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"((u32)__cvta_generic_to_shared(row))
               : "memory");
}
__device__ __forceinline__ void matrices2_turned(u32 (&to)[2], const u16* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
               : "=r"(to[0]), "=r"(to[1])
               : "r"((u32)__cvta_generic_to_shared(row))
               : "memory");
}

extern "C" __global__ void __launch_bounds__(160) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * kRows, column = blockIdx.y * kColumns;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, steps = (k + 15) / 16;
  __shared__ alignas(16) u16 of_a[kStages][kRows * kPitchA];
  __shared__ alignas(16) u16 of_b[kStages][16 * kPitchB];
  if (warp == 4) {
#pragma unroll 1
    for (int s = 0; s < steps; ++s) {
      const int slot = s % kStages, p = 16 * s;
      if (s >= kStages && s < 40) named_sync(4 + slot, kThreads);
      // K and N are multiples of 8: a piece of 16 bytes is inside or outside.
      for (int i = lane; i < kRows * 2; i += 32) {
        const int r = i / 2, at = i % 2 * 8, inside = row + r < m && p + at < k;
        copy16(&of_a[slot][r * kPitchA + at], a + (inside ? (i64)(row + r) * lda + p + at : 0), inside ? 16 : 0);
      }
      for (int i = lane; i < 64; i += 32) {
        const int r = i / 4, at = i % 4 * 8, inside = p + r < k && column + at < n;
        copy16(&of_b[slot][r * kPitchB + at], b + (inside ? (i64)(p + r) * ldb + column + at : 0), inside ? 16 : 0);
      }
      asm volatile("cp.async.wait_all;" ::: "memory");
      named_arrive(1 + slot, kThreads);
    }
    return;
  }
  float acc[4][4] = {};
#pragma unroll 1
  for (int s = 0; s < steps; ++s) {
    const int slot = s % kStages;
    named_sync(1 + slot, kThreads);
    u32 x[4];
    matrices4(x, &of_a[slot][(16 * warp + lane % 16) * kPitchA + lane / 16 * 8]);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      u32 y[2];
      matrices2_turned(y, &of_b[slot][lane % 16 * kPitchB + 8 * j]);
      mma16816(acc[j], x[0], x[1], x[2], x[3], y[0], y[1]);
    }
    if (s + kStages < steps && s + kStages < 40) named_arrive(4 + slot, kThreads);
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) store(acc[j], g, row + 16 * warp, column + 8 * j);
}
