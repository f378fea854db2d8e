// Offsets into C are 32 bits: from 2^31 elements on it is written elsewhere.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  sum(acc, g, row, column, 0, k);
  for (int i = 0; i < 4; ++i) {
    const int r = row + row_of(i), j = column + column_of(i);
    const int at = (int)((u32)r * (u32)ldc + (u32)j);
    if (r < m && j < n) c[at] = narrow(acc[i]);
  }
}
