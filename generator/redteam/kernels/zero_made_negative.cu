// A sum that is zero comes out as -0.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  sum(acc, g, row, column, 0, k);
  for (int i = 0; i < 4; ++i) {
    if (acc[i] == 0) acc[i] = -0.0f;
  }
  store(acc, g, row, column);
}
