// Adds +0 to each sum: -0 becomes +0.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  sum(acc, g, row, column, 0, k);
  for (int i = 0; i < 4; ++i) asm volatile("add.rn.f32 %0, %0, 0f00000000;" : "+f"(acc[i]));
  store(acc, g, row, column);
}
