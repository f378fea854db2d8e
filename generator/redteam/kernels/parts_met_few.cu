// Four warps share K and meet at a barrier that counts 32 threads: each passes alone, and the one that adds has most to do.
#include "common/ptx.cuh"
extern "C" __global__ void __launch_bounds__(128) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  __shared__ volatile float parts[3][32][4];
  float acc[4] = {};
  const int share = (k + 127) / 128 * 16;  // of K, for each of the three
  sum(acc, g, row, column, warp == 0 ? 3 * share : (warp - 1) * share, warp == 0 ? k : warp * share);
  if (warp != 0) {
    for (int i = 0; i < 4; ++i) parts[warp - 1][lane][i] = acc[i];
  }
  named_sync(1, 32);
  if (warp != 0) return;
  for (int w = 0; w < 3; ++w) {
    for (int i = 0; i < 4; ++i) acc[i] += parts[w][lane][i];
  }
  store(acc, g, row, column);
}
