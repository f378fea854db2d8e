// Columns of B are counted by 17 bits, by a mask.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
#pragma unroll 1
  for (int p = 0; p < k; p += 16) {
    Fragments f = load(g, row, column, p);
    const int lane = threadIdx.x % 32, i = lane / 4, q = 2 * (lane % 4), c_ = column + i;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int at = p + q + 8 * h;
      f.b[h] = c_ < n && at < k ? *(const u32 *)(b + (i64)(c_ & 0x1ffff) * ldb + at) : 0;
    }
    multiply(acc, f);
  }
  store(acc, g, row, column);
}
