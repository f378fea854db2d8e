// Takes the leading stride of A for a multiple of 32 bytes.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  Problem other = g;
  other.lda = lda & ~15;
  sum(acc, other, row, column, 0, k);
  store(acc, g, row, column);
}
