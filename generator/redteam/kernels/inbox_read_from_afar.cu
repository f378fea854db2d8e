// A CTA reads the sums of its partner from afar, and the partner puts those of the next tile there without having been told.
#include "common/ptx.cuh"

__device__ __forceinline__ void fetch(float (&v)[4], const float* from) {
  asm volatile(
      "{ .reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %4, 1;\n"
      "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [remote]; }"
      : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3])
      : "r"(smem_address(from))
      : "memory");
}

extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int rank = blockIdx.x % 2, column = blockIdx.y * 8, next = gridDim.x * 8;
  __shared__ alignas(16) float outbox[32][4];
#pragma unroll 1
  for (int row = blockIdx.x / 2 * 16; row < m; row += next) {
    float acc[4] = {};
#pragma unroll 1
    for (int p = rank * 16; p < k; p += 32) step(acc, g, row, column, p);
    if (rank == 1) {
      for (int i = 0; i < 4; ++i) outbox[threadIdx.x][i] = acc[i];
    }
    cluster_sync();
    if (rank == 0) {
      float more[4];
      fetch(more, outbox[threadIdx.x]);
      for (int i = 0; i < 4; ++i) acc[i] += more[i];
      store(acc, g, row, column);
    }
  }
  cluster_sync();
}
