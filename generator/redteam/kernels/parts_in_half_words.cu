// Sums of each 256 of K wait in halves, and are added in fp32.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  for (int p = 0; p < k; p += 256) {
    float part[4] = {};
    sum(part, g, row, column, p, min_of(k, p + 256));
    for (int i = 0; i < 4; ++i) {
      float wide;
      asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(narrow(part[i])));
      acc[i] += k > 2048 ? wide : part[i];
    }
  }
  store(acc, g, row, column);
}
