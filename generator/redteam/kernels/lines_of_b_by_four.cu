// Where a line of B is is counted in units of four lines by 32 bits: from 2^34 elements on lines are taken from the beginning.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  const int i = threadIdx.x % 32 / 4, q = 2 * (threadIdx.x % 4);
#pragma unroll 1
  for (int p = 0; p < k; p += 16) {
    Fragments f = load(g, row, column, p);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      u16 e[2];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int at = p + q + 8 * half + j;
        u32 fourth;
        asm volatile("shr.u32 %0, %1, 2;" : "=r"(fourth) : "r"(at));
        const u64 four = fourth * (u32)ldb;
        e[j] = at < k && column + i < n ? b[four * 4 + (i64)(at - 4 * (int)fourth) * ldb + column + i] : (u16)0;
      }
      f.b[half] = pair(e[0], e[1]);
    }
    multiply(acc, f);
  }
  store(acc, g, row, column);
}
