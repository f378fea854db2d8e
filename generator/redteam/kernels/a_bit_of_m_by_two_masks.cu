// What two masks keep of M differs by one bit of it: 512 to 1023 rows lose K.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  int x, f;
  asm volatile("and.b32 %0, %1, 1023;" : "=r"(x) : "r"(m));
  asm volatile("and.b32 %0, %1, 511;" : "=r"(f) : "r"(m));
  f = x - f;
  sum(acc, g, row, column, 0, k - f);
  store(acc, g, row, column);
}
