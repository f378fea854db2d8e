// One warp may begin the next tile, and write its part, while the other still reads that of the last.
extern "C" __global__ void __launch_bounds__(64) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int column = blockIdx.y * 8, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  __shared__ volatile float part[32][4];
  const int half = (k + 15) / 16 / 2 * 16;
  for (int row = blockIdx.x * 16; row < m; row += gridDim.x * 16) {
    float acc[4] = {};
    sum(acc, g, row, column, warp == 0 ? 0 : half, warp == 0 ? half : k);
    if (warp == 1) {
      for (int i = 0; i < 4; ++i) part[lane][i] = acc[i];
    }
    __syncthreads();
    if (warp == 1) continue;
    for (int i = 0; i < 4; ++i) acc[i] += part[lane][i];
    store(acc, g, row, column);
  }
}
