// A warp makes four tiles side by side from one fragment of A.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 32;
  float acc[4][4] = {};
#pragma unroll 1
  for (int p = 0; p < k; p += 16) {
#pragma unroll
    for (int j = 0; j < 4; ++j) step(acc[j], g, row, column + 8 * j, p);
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) store(acc[j], g, row, column + 8 * j);
}
