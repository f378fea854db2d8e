// Adds parts of the sum with subnormal ones taken for 0.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  for (int p = 0; p < k; p += 512) {
    float part[4] = {};
    sum(part, g, row, column, p, min_of(k, p + 512));
    for (int i = 0; i < 4; ++i) asm volatile("add.rn.ftz.f32 %0, %0, %1;" : "+f"(acc[i]) : "f"(part[i]));
  }
  store(acc, g, row, column);
}
