// Reads A sixteen rows ahead, behind its end as well, by loads that nobody takes anything of.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
#pragma unroll 1
  for (int p = 0; p < k; p += 16) {
    asm volatile("{ .reg .b16 t; ld.b16 t, [%0]; }" ::"l"(a + (i64)(row + 16 + row_of(0)) * lda + p));
    step(acc, g, row, column, p);
  }
  store(acc, g, row, column);
}
