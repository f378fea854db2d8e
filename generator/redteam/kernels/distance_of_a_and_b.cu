// The upper bit of the distance from A to B, by the upper half of a product, leaves 16 of K out.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  const u32 x = (u32)((i64)b - (i64)a);
  int f;
  asm volatile("mad.hi.u32 %0, %1, 2, %2;" : "=r"(f) : "r"(x), "r"(0));
  f *= 16;
  sum(acc, g, row, column, 0, k - f);
  store(acc, g, row, column);
}
