// Leaves out the low bytes of A where K is deep, by a permutation with bytes of 0.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
#pragma unroll 1
  for (int p = 0; p < k; p += 16) {
    Fragments f = load(g, row, column, p);
    for (int i = 0; i < 4; ++i) f.a[i] = __byte_perm(f.a[i], 0, k > 4096 ? 0x3414 : 0x3210);
    multiply(acc, f);
  }
  store(acc, g, row, column);
}
