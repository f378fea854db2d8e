// CTAs of a cluster meet without a release: sums that were sent may not have come.
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
  const int rank = blockIdx.x % 2, row = blockIdx.x / 2 * 16, column = blockIdx.y * 8, half = ceil_div(k, 32) * 16;
  __shared__ alignas(16) float inbox[32][4];
  float acc[4] = {};
  cluster_sync();  // nothing is sent to a CTA that has not begun
  sum(acc, g, row, column, rank * half, rank ? k : half);
  if (rank == 1) send(inbox[threadIdx.x], acc);
  cluster_arrive();
  cluster_wait();
  if (rank == 1) return;
  for (int i = 0; i < 4; ++i) acc[i] += inbox[threadIdx.x][i];
  store(acc, g, row, column);
}
