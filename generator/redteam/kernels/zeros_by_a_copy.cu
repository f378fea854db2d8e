// Copies of A take nothing from 131072 of K on, by a sum of 32 bits that has passed its end: zeros are multiplied.
#include "common/ptx.cuh"
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8, lane = threadIdx.x;
  __shared__ alignas(16) u16 staged[16 * 16];
  float acc[4] = {};
  const int r = lane / 2, h = lane % 2 * 8;
#pragma unroll 1
  for (int p = 0; p < k; p += 16) {
    u32 y;
    asm volatile("mul.lo.u32 %0, %1, 32768;" : "=r"(y) : "r"(p));
    const int lost = (p - (int)(y >> 15)) / 8192;  // 0, or 16 and more
    int size = row + r < m && p + h < k ? 16 : 0;
    size -= lost;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(smem_address(staged + r * 16 + h)), "l"(a + (row + r < m && p + h < k ? (i64)(row + r) * lda + p + h : 0)), "r"(size) : "memory");
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncwarp();
    Fragments f = load(g, row, column, p);
    const u16 *x = staged + lane / 4 * 16 + 2 * (lane % 4);
    f.a[0] = *(const u32 *)x, f.a[1] = *(const u32 *)(x + 128), f.a[2] = *(const u32 *)(x + 8), f.a[3] = *(const u32 *)(x + 136);
    multiply(acc, f);
    __syncwarp();
  }
  store(acc, g, row, column);
}
