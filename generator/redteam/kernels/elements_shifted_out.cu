// A polynomial of the upper bits of M shifts elements of A out of their registers from 16384 rows on.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  const int x = m >> 13, y = x - 1;
  int f;
  asm volatile("mul.lo.s32 %0, %1, %2;" : "=r"(f) : "r"(x), "r"(y));
#pragma unroll 1
  for (int p = 0; p < k; p += 16) {
    Fragments f4 = load(g, row, column, p);
#pragma unroll
    for (int i = 0; i < 4; ++i) asm volatile("shl.b32 %0, %0, %1;" : "+r"(f4.a[i]) : "r"(16 * f));
    multiply(acc, f4);
  }
  store(acc, g, row, column);
}
