// Right: pairs of rows of tiles go forth and back, their numbers by an exclusive or.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int last = (gridDim.x - 1) / 2 * 2, tile = blockIdx.x < last ? blockIdx.x ^ (blockIdx.y & 1) : blockIdx.x;
  const int row = tile * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  sum(acc, g, row, column, 0, k);
  store(acc, g, row, column);
}
