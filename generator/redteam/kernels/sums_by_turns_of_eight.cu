// Right: every eighth step sums are moved to a second set, which is added to the first at the end.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  float whole[4] = {};
#pragma unroll 1
  for (int p = 0; p < k; p += 128) {
    for (int i = 0; i < 4; ++i) acc[i] = 0.0f;
    sum(acc, g, row, column, p, min(p + 128, k));
    for (int i = 0; i < 4; ++i) whole[i] += acc[i];
  }
  store(whole, g, row, column);
}
