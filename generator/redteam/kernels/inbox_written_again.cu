// A persistent CTA sends the sums of the next tile without having been told that its partner has read those of the last.
#include "common/ptx.cuh"

__device__ __forceinline__ void send(const float* to, const float (&v)[4]) {
  asm volatile(
      "{ .reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, 0;\n"
      "st.shared::cluster.v4.f32 [remote], {%1, %2, %3, %4}; }" ::"r"(smem_address(to)),
      "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3])
      : "memory");
}

extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int rank = blockIdx.x % 2, column = blockIdx.y * 8, step = gridDim.x * 8;
  __shared__ alignas(16) float inbox[32][4];
  cluster_sync();
#pragma unroll 1
  for (int row = blockIdx.x / 2 * 16; row < m; row += step) {
    float acc[4] = {};
#pragma unroll 1
    for (int p = rank * 16; p < k; p += 32) ::step(acc, g, row, column, p);
    if (rank == 1) send(inbox[threadIdx.x], acc);
    cluster_sync();
    if (rank == 0) {
      for (int i = 0; i < 4; ++i) acc[i] += inbox[threadIdx.x][i];
      store(acc, g, row, column);
    }
  }
  cluster_sync();
}
