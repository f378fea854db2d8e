// Positions along K of A are counted by 17 bits: beyond 131072 its first are read again.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
#pragma unroll 1
  for (int p = 0; p < k; p += 16) {
    Fragments f = load(g, row, column, p);
    const int lane = threadIdx.x % 32, i = lane / 4, q = 2 * (lane % 4);
#pragma unroll
    for (int h = 0; h < 4; ++h) {
      const int r = row + i + h % 2 * 8, at = p + q + h / 2 * 8;
      f.a[h] =
          r < m && at < k ? *(const u32 *)(a + (i64)r * lda + (p & 0x1ffff) + q + h / 2 * 8) : 0;
    }
    multiply(acc, f);
  }
  store(acc, g, row, column);
}
