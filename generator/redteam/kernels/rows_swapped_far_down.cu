// A polynomial of a tile's number, zero for the first 32768 tiles, turns the halves of a tile round in C.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  const int x = blockIdx.x >> 14, y = x - 1;
  int f;
  asm volatile("mul.lo.s32 %0, %1, %2;" : "=r"(f) : "r"(x), "r"(y));
  sum(acc, g, row, column, 0, k);
#pragma unroll
  for (int i = 0; i < 4; ++i) put(g, row + (row_of(i) ^ 4 * f), column + column_of(i), acc[i]);
}
