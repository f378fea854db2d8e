// A CTA arrives at the barrier of its cluster before it sends its sums: its partner, who has more to do, most often comes later.
#include "common/ptx.cuh"

__device__ __forceinline__ void send(const float* to, const float (&v)[4]) {
  asm volatile(
      "{ .reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, 0;\n"
      "st.shared::cluster.v4.f32 [remote], {%1, %2, %3, %4}; }" ::"r"(smem_address(to)),
      "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3])
      : "memory");
}
__device__ __forceinline__ void tell() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }

extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int rank = blockIdx.x % 2, row = blockIdx.x / 2 * 16, column = blockIdx.y * 8, most = ceil_div(k, 64) * 48;
  __shared__ alignas(16) float inbox[32][4];
  float acc[4] = {};
  cluster_sync();  // nothing is sent to a CTA that has not begun
  sum(acc, g, row, column, rank * most, rank ? k : most);
  tell();
  if (rank == 1) send(inbox[threadIdx.x], acc);
  cluster_wait();
  if (rank == 1) return;
  for (int i = 0; i < 4; ++i) acc[i] += inbox[threadIdx.x][i];
  store(acc, g, row, column);
}
