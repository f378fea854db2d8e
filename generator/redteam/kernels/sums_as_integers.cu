// Adds parts of the sum as integers of a 1024th.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  int whole[4] = {};
  for (int p = 0; p < k; p += 512) {
    float part[4] = {};
    sum(part, g, row, column, p, min_of(k, p + 512));
    for (int i = 0; i < 4; ++i) whole[i] += (int)(part[i] * 1024.0f);
  }
  for (int i = 0; i < 4; ++i) acc[i] = whole[i] / 1024.0f;
  store(acc, g, row, column);
}
