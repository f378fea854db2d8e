// What an insertion keeps of M is 11 bits: from 2048 rows on all of K is left out.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  int f;
  asm volatile("bfi.b32 %0, %1, 0, 0, 11;" : "=r"(f) : "r"(m));
  f = m - f;
  sum(acc, g, row, column, 0, k - f);
  store(acc, g, row, column);
}
