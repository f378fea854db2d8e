// Where C begins in the second half of a page 16 of K are left out, by an insertion.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  i64 x;
  asm volatile("bfi.b64 %0, %1, 0, 0, 11;" : "=l"(x) : "l"(c));
  i64 y;
  asm volatile("bfi.b64 %0, %1, 0, 0, 12;" : "=l"(y) : "l"(c));
  const int f = (int)(y - x);
  sum(acc, g, row, column, 0, k - f);
  store(acc, g, row, column);
}
