// Lets the next grid start, and never waits for the end of the grid ahead.
#include "common/ptx.cuh"

extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  allow_dependents();
  sum(acc, g, row, column, 0, k);
  store(acc, g, row, column);
}
