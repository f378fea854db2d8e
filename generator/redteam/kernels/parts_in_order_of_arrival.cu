// Four warps add to one sum in shared memory, in the order in which they come.
extern "C" __global__ void __launch_bounds__(128) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8, warp = threadIdx.x / 32;
  __shared__ float whole[32][4];
  float acc[4] = {};
  if (warp == 0) {
    for (int i = 0; i < 4; ++i) whole[threadIdx.x][i] = 0.0f;
  }
  __syncthreads();
  for (int p = 16 * warp; p < k; p += 64) step(acc, g, row, column, p);
  for (int i = 0; i < 4; ++i) {
    asm volatile("red.shared.add.f32 [%0], %1;" ::"r"((u32)__cvta_generic_to_shared(&whole[threadIdx.x % 32][i])),
                 "f"(acc[i])
                 : "memory");
  }
  __syncthreads();
  if (warp != 0) return;
  for (int i = 0; i < 4; ++i) acc[i] = whole[threadIdx.x][i];
  store(acc, g, row, column);
}
