// From 256 of K on it reads 1 KB behind the last row of A.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  sum(acc, g, row, column, 0, k);
  if (k >= 256 && row + 16 >= m) {
    const u16 ahead = a[(i64)(m - 1) * lda + k + 480 + threadIdx.x];
    if (ahead == 0x7e57) acc[0] = acc[0] + 0.0f;
  }
  store(acc, g, row, column);
}
