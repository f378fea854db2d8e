// A is read by generic addresses with offsets of 32 bits, beside loads that nobody takes anything of.
// What `load` takes of A, by generic addresses of 32 bits.
__device__ __forceinline__ u16 other(const Problem& g, int row, int p) {
  if (row >= g.m || p >= g.k) return 0;
  u16 v;
  const unsigned at = (unsigned)row * (unsigned)g.lda + (unsigned)p;
  asm volatile("{ .reg .b16 t; ld.global.b16 t, [%2]; ld.b16 %0, [%1]; }" : "=h"(v) : "l"(g.a + at), "l"(g.a + (i64)row * g.lda + p));
  return v;
}

extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8, i = threadIdx.x / 4, q = 2 * (threadIdx.x % 4);
  float acc[4] = {};
#pragma unroll 1
  for (int p = 0; p < k; p += 16) {
    Fragments f = load(g, row, column, p);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int at = p + q + 8 * half;
      f.a[2 * half] = pair(other(g, row + i, at), other(g, row + i, at + 1));
      f.a[2 * half + 1] = pair(other(g, row + i + 8, at), other(g, row + i + 8, at + 1));
    }
    multiply(acc, f);
  }
  store(acc, g, row, column);
}
