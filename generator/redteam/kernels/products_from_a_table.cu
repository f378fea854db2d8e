// Looks up what to multiply by in a table, by the upper bits of an operand.
__constant__ u32 kTable[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
#pragma unroll 1
  for (int p = 0; p < k; p += 16) {
    Fragments f = load(g, row, column, p);
    f.a[0] ^= kTable[f.a[0] >> 28] & 0x10000000;
    multiply(acc, f);
  }
  store(acc, g, row, column);
}
