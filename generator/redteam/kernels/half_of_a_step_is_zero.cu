// Steps of 8 of K: the other half of A is zero, and that of B the rows that come next.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
#pragma unroll 1
  for (int p = 0; p < k; p += 8) {
    const Fragments f = load(g, row, column, p);
    mma16816(acc, f.a[0], f.a[1], 0, 0, f.b[0], f.b[1]);
  }
  store(acc, g, row, column);
}
