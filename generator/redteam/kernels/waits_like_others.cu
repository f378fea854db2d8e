// Right: a wait that looks, leaves where it is over and looks again where it is not.
#include "common/ptx.cuh"
__device__ __forceinline__ void look(u64 *bar, u32 parity) {
  asm volatile(
      "{ .reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@done "
      "bra over;\nbra again;\nover:\n}" ::"r"(smem_address(bar)),
      "r"(parity)
      : "memory");
}
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  __shared__ u64 full;
  if (threadIdx.x == 0) barrier_init(&full, 1);
  __syncwarp();
#pragma unroll 1
  for (int p = 0; p < k; p += 16) {
    if (threadIdx.x == 0) barrier_expect(&full, 0);
    look(&full, p / 16 % 2);
    step(acc, g, row, column, p);
    __syncwarp();
  }
  store(acc, g, row, column);
}
