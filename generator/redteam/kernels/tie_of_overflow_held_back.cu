// What is halfway between the largest number and the next becomes the largest, not an infinity.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  sum(acc, g, row, column, 0, k);
  for (int i = 0; i < 4; ++i) {
    if (acc[i] == 65520.0f || acc[i] == -65520.0f) acc[i] = acc[i] > 0 ? 65504.0f : -65504.0f;
  }
  store(acc, g, row, column);
}
