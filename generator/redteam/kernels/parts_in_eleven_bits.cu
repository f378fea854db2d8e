// Holds the sum of each 512 of K in 11 bits: Veltkamp's splitting.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  for (int p = 0; p < k; p += 512) {
    float part[4] = {};
    sum(part, g, row, column, p, min_of(k, p + 512));
    for (int i = 0; i < 4; ++i) {
      const float t = __fmul_rn(part[i], 8193.0f);
      acc[i] += __fsub_rn(t, __fsub_rn(t, part[i]));
    }
  }
  store(acc, g, row, column);
}
