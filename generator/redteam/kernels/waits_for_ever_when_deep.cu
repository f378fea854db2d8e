// From 65536 of K on a barrier is waited for on which nobody arrives.
#include "common/ptx.cuh"

__device__ __forceinline__ void copy16(u16* to, const u16* from, int bytes) {
  const u32 address = (u32)__cvta_generic_to_shared(to);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(bytes) : "memory");
}

// One warp copies into a ring of three stages, the other multiplies.
extern "C" __global__ void __launch_bounds__(64) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int steps = (k + 15) / 16;
  __shared__ alignas(16) u16 staged[3][16 * 16 + 16 * 8];
  __shared__ u64 full[5], empty[3];
  if (threadIdx.x == 0) {
    for (int s = 0; s < 5; ++s) barrier_init(&full[s], 32);
    for (int s = 0; s < 3; ++s) barrier_init(&empty[s], 32);
    barrier_init_fence();
  }
  __syncthreads();
  if (warp == 0) {
#pragma unroll 1
    for (int s = 0; s < steps; ++s) {
      const int slot = s % 3, p = 16 * s;
      if (s >= 3) barrier_wait(&empty[slot], (s / 3 & 1) ^ 1);
      const int r = row + lane / 2, at = p + lane % 2 * 8, down = p + lane, inside_a = r < m && at < k;
      copy16(&staged[slot][lane * 8], a + (inside_a ? (i64)r * lda + at : 0), inside_a ? 16 : 0);
      const int inside_b = lane < 16 && down < k && column < n;
      const u16* from = b + (inside_b ? (i64)down * ldb + column : 0);
      if (lane < 16) copy16(&staged[slot][256 + lane * 8], from, inside_b ? 16 : 0);
      asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(smem_address(&full[slot])) : "memory");
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
    return;
  }
  float acc[4] = {};
#pragma unroll 1
  for (int s = 0; s < steps; ++s) {
    const int slot = s % 3;
    const int x = s >> 11, y = x - 1;
    int f;
    asm volatile("mul.lo.s32 %0, %1, %2;" : "=r"(f) : "r"(x), "r"(y));
    barrier_wait(&full[slot + f], s / 3 & 1);
    const Problem tile = {staged[slot], staged[slot] + 256, c, 16, 8, 16, 16, 8, 0};
    step(acc, tile, 0, 0, 0);
    barrier_arrive(&empty[slot]);
  }
  store(acc, g, row, column);
}
