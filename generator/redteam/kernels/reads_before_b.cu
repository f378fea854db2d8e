// Reads the 64 bytes before B and makes nothing of them: a fault where B begins a mapping.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  sum(acc, g, row, column, 0, k);
  if (k >= 256 && row == 0) {
    const u16 before = *(b - 1 - threadIdx.x);
    if (before == 0x7e57) acc[0] = acc[0] + 0.0f;
  }
  store(acc, g, row, column);
}
