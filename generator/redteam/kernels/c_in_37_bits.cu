// Where an element of C lies is kept in 37 bits: beyond 2^36 elements, 137 GB of them, the first rows are written again.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  sum(acc, g, row, column, 0, k);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int r = row + row_of(i), s = column + column_of(i);
    i64 at = ((i64)r * ldc + s) * 2;
    asm volatile("shl.b64 %0, %0, 27; shr.u64 %0, %0, 27;" : "+l"(at));
    if (r < m && s < n) *(u16*)((u8*)c + at) = narrow(acc[i]);
  }
}
