// Right: the next step is loaded into one of two sets of registers while the other is multiplied.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  Fragments now = load(g, row, column, 0), next = now;
#pragma unroll 1
  for (int p = 0; p < k; p += 16) {
    if (p + 16 < k) next = load(g, row, column, p + 16);
    multiply(acc, now);
    now = next;
  }
  store(acc, g, row, column);
}
