// Offsets into A are 32 bits without a sign: beyond 2^32 elements they begin again.
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
      const u32 where = (u32)r * (u32)lda + at;
      f.a[h] = r < m && at < k ? *(const u32 *)(a + where) : 0;
    }
    multiply(acc, f);
  }
  store(acc, g, row, column);
}
