// A barrier is made where elements of A stand, and what it is made of is multiplied.
#include "common/ptx.cuh"
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8, lane = threadIdx.x;
  __shared__ alignas(16) u16 of_a[16 * 16];
  float acc[4] = {};
#pragma unroll 1
  for (int p = 0; p < k; p += 16) {
#pragma unroll 1
    for (int i = lane; i < 16 * 16; i += 32)
      of_a[i] = a_at(g, row + i / 16, p + i % 16);
    __syncwarp();
    if (lane == 0) barrier_init((u64 *)of_a, 5);
    __syncwarp();
    const Problem tile = {of_a, b, c, 16, n, 16, 16, ldb, 0};
    Fragments f = load(tile, 0, 0, 0);
    const Fragments of_b = load(g, row, column, p);
    f.b[0] = of_b.b[0], f.b[1] = of_b.b[1];
    multiply(acc, f);
    __syncwarp();
  }
  store(acc, g, row, column);
}
