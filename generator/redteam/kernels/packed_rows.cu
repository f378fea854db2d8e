// Rows of A that stand one behind the other lose 16 of K.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  const int f = lda == k ? 16 : 0;
  sum(acc, g, row, column, 0, k - f);
  store(acc, g, row, column);
}
