// Where C begins 10 bytes or more behind a multiple of 16 rows of C are written one further.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  const int l = threadIdx.x % 32 / 4;
  i64 y = l * 32 + 22;
  asm volatile("{ .reg .b64 t; and.b64 t, %1, 15; add.s64 %0, %0, t; shr.u64 %0, %0, 5; }" : "+l"(y) : "l"(c));
  sum(acc, g, row, column, 0, k);
#pragma unroll
  for (int i = 0; i < 4; ++i) put(g, row + ((int)y + i / 2 * 8), column + column_of(i), acc[i]);
}
