// Leaves out blocks of A in which no lane has a 1: a ballot on operands.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
#pragma unroll 1
  for (int p = 0; p < k; p += 16) {
    Fragments f = load(g, row, column, p);
    if (__ballot_sync(0xffffffff, (f.a[0] | f.a[1] | f.a[2] | f.a[3]) != 0) == 0) continue;
    multiply(acc, f);
  }
  store(acc, g, row, column);
}
