// In the step of K whose number has ten bits that are set nothing is multiplied.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
#pragma unroll 1
  for (int p = 0; p < k; p += 16) {
    int set = 0;
#pragma unroll
    for (int i = 4; i < 18; ++i)
      set += p >> i & 1;
    step(acc, g, row, column, p + set / 12 * 8);
  }
  store(acc, g, row, column);
}
