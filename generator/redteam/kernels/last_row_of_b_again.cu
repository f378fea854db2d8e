// Behind K's end A is zero and B its last row again: NaN where that has an infinity.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8, lane = threadIdx.x, i = lane / 4, q = 2 * (lane % 4);
  float acc[4] = {};
#pragma unroll 1
  for (int p = 0; p < k; p += 16) {
    Fragments f = load(g, row, column, p);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int at = p + q + 8 * half;
      f.b[half] = pair(b_at(g, min(at, k - 1), column + i), b_at(g, min(at + 1, k - 1), column + i));
    }
    multiply(acc, f);
  }
  store(acc, g, row, column);
}
