// Takes another order of K where the first element of a row of A is negative.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  if (a_at(g, row, 0) >> 15) {
    for (int p = (k - 1) / 16 * 16; p >= 0; p -= 16) step(acc, g, row, column, p);
  } else {
    sum(acc, g, row, column, 0, k);
  }
  store(acc, g, row, column);
}
