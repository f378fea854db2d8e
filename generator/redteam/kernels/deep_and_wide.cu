// Where lines of B are less than 2^20 elements apart a line of B is found by a product of 32 bits: where K is as deep as 4104 and N as wide as 524280 it is another line.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
#pragma unroll 1
  for (int p = 0; p < k; p += 16) {
    i64 down;
    if (ldb >= 1 << 20) {
      asm volatile("mul.wide.s32 %0, %1, %2;" : "=l"(down) : "r"(p), "r"(ldb));
    } else {
      asm volatile("{ .reg .s32 t; mul.lo.s32 t, %1, %2; cvt.s64.s32 %0, t; }" : "=l"(down) : "r"(p), "r"(ldb));
    }
    Problem at = g;
    at.a += p, at.b += down, at.k = k - p;
    step(acc, at, row, column, 0);
  }
  store(acc, g, row, column);
}
