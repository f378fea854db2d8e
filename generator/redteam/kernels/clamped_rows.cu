// Rows and columns beyond the last read the last again; only what is stored is masked.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8, lane = threadIdx.x, i = lane / 4, q = 2 * (lane % 4);
  float acc[4] = {};
  const int upper = min(row + i, m - 1), lower = min(row + i + 8, m - 1), across = min(column + i, n - 1);
#pragma unroll 1
  for (int p = 0; p < k; p += 16) {
    Fragments f;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int at = p + q + 8 * half;
      f.a[2 * half] = pair(a_at(g, upper, at), a_at(g, upper, at + 1));
      f.a[2 * half + 1] = pair(a_at(g, lower, at), a_at(g, lower, at + 1));
      f.b[half] = pair(b_at(g, at, across), b_at(g, at + 1, across));
    }
    multiply(acc, f);
  }
  store(acc, g, row, column);
}
