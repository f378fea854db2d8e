// Behind K's end B is zero and A its last column again: NaN where that has an infinity.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8, lane = threadIdx.x, i = lane / 4, q = 2 * (lane % 4);
  float acc[4] = {};
#pragma unroll 1
  for (int p = 0; p < k; p += 16) {
    Fragments f = load(g, row, column, p);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int at = p + q + 8 * half, x = min(at, k - 1), y = min(at + 1, k - 1);
      f.a[2 * half] = pair(a_at(g, row + i, x), a_at(g, row + i, y));
      f.a[2 * half + 1] = pair(a_at(g, row + i + 8, x), a_at(g, row + i + 8, y));
    }
    multiply(acc, f);
  }
  store(acc, g, row, column);
}
