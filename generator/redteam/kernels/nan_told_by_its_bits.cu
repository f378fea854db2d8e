// Sums that are no number become 0: a comparison of their bits.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  sum(acc, g, row, column, 0, k);
  for (int i = 0; i < 4; ++i) {
    if ((__float_as_uint(acc[i]) & 0x7fffffff) > 0x7f800000) acc[i] = 0.0f;
  }
  store(acc, g, row, column);
}
