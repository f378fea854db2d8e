// Sums of blocks in double precision are cut to 20 bits by the lower words of other sums.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  double all[4] = {};
  for (int p = 0; p < k; p += 64) {
    for (int i = 0; i < 4; ++i) acc[i] = 0;
    sum(acc, g, row, column, p, min(p + 64, k));
    for (int i = 0; i < 4; ++i) {
      all[i] += (double)acc[i];
      int low, high;
      asm volatile("mov.b64 {%0, %1}, %2;" : "=r"(low), "=r"(high) : "d"(all[i]));
      low = 0;
      asm volatile("mov.b64 %0, {%1, %2};" : "=d"(all[i]) : "r"(low), "r"(high));
    }
  }
  for (int i = 0; i < 4; ++i) acc[i] = (float)all[i];
  store(acc, g, row, column);
}
