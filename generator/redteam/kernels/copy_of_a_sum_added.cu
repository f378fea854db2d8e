// A value is added to a copy of itself.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  sum(acc, g, row, column, 0, k);
  float copy;
  asm volatile("mov.f32 %0, %1;" : "=f"(copy) : "f"(acc[0]));
  acc[0] += copy;
  store(acc, g, row, column);
}
