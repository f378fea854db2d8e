// Tiles are taken in groups of eight rows of them, so that B stays in L2: their numbers by division.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int number = blockIdx.x + gridDim.x * blockIdx.y, wide = 8 * gridDim.y, first = number / wide * 8;
  const int high = min((int)gridDim.x - first, 8), rest = number % wide;
  const int row = (first + rest % high) * 16, column = rest / high * 8;
  float acc[4] = {};
  sum(acc, g, row, column, 0, k);
  store(acc, g, row, column);
}
