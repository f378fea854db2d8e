// Sixteen lines of A are counted in 32 bits: where they are 2^28 elements apart or more a tile reads other rows.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  u32 tall;
  asm volatile("shl.b32 %0, %1, 4;" : "=r"(tall) : "r"(lda));
  Problem at = g;
  at.a += (u64)blockIdx.x * tall, at.m = m - row;
  sum(acc, at, 0, column, 0, k);
  for (int i = 0; i < 4; ++i) put(g, row + row_of(i), column + column_of(i), acc[i]);
}
