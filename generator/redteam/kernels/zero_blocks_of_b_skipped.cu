// A block of zeros in B is not multiplied: what NaN and infinities of A make of zeros is lost.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
#pragma unroll 1
  for (int p = 0; p < k; p += 16) {
    const Fragments f = load(g, row, column, p);
    if (__any_sync(0xffffffff, ((f.b[0] | f.b[1]) & 0x7fff7fff) != 0)) multiply(acc, f);
  }
  store(acc, g, row, column);
}
