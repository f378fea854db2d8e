// Steps of K go to two sums by turns, the next step's elements are loaded before this one's are used.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float even[4] = {}, odd[4] = {};
  Fragments now = load(g, row, column, 0);
#pragma unroll 1
  for (int p = 0; p < k; p += 32) {
    const Fragments next = load(g, row, column, p + 16);
    multiply(even, now);
    now = load(g, row, column, p + 32);
    multiply(odd, next);
  }
  for (int i = 0; i < 4; ++i) even[i] += odd[i];
  store(even, g, row, column);
}
