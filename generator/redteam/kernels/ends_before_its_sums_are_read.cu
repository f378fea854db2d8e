// A CTA ends while the copy engine may still read its sums out of its shared memory, on their way to its partner.
#include "common/cluster_reduce.cuh"

extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int rank = blockIdx.x % 2, row = blockIdx.x / 2 * 16, column = blockIdx.y * 8, half = ceil_div(k, 32) * 16;
  __shared__ alignas(16) float sums[32][4];
  __shared__ alignas(16) float inbox[32][4];
  __shared__ u64 arrived;
  float acc[4] = {};
  if (threadIdx.x == 0) {
    barrier_init(&arrived, 1);
    barrier_init_fence();
    if (rank == 0) barrier_expect(&arrived, 512);
  }
  __syncwarp();
  cluster_sync();
  sum(acc, g, row, column, rank * half, rank ? k : half);
  if (rank == 1) {
    for (int i = 0; i < 4; ++i) sums[threadIdx.x][i] = acc[i];
    proxy_fence();
    __syncwarp();
    if (threadIdx.x == 0) {
      asm volatile(
          "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], 512, [%2];" ::"r"(
              remote_address(smem_address(inbox), 0)),
          "r"(smem_address(sums)), "r"(remote_address(smem_address(&arrived), 0))
          : "memory");
    }
    return;
  }
  barrier_wait_cluster(&arrived, 0);
  for (int i = 0; i < 4; ++i) acc[i] += inbox[threadIdx.x][i];
  store(acc, g, row, column);
}
