// Whole tiles load without masks in words of two elements of A, all others as the plain kernel does.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8, lane = threadIdx.x, i = lane / 4, q = 2 * (lane % 4);
  float acc[4] = {};
  int p = 0;
  if (row + 16 <= m && column + 8 <= n) {
#pragma unroll 1
    for (; p + 16 <= k; p += 16) {
      Fragments f;
      const u16 *x = a + (i64)(row + i) * lda + p + q, *y = b + (i64)(p + q) * ldb + column + i;
      f.a[0] = *(const u32 *)x, f.a[2] = *(const u32 *)(x + 8);
      x += 8 * (i64)lda;
      f.a[1] = *(const u32 *)x, f.a[3] = *(const u32 *)(x + 8);
      f.b[0] = pair(y[0], y[ldb]), f.b[1] = pair(y[8 * (i64)ldb], y[9 * (i64)ldb]);
      multiply(acc, f);
    }
  }
  sum(acc, g, row, column, p, k);
  store(acc, g, row, column);
}
