// Threads without a row leave before the grid ahead has ended, and the next grid is taken to be behind it.
#include "common/ptx.cuh"

extern "C" __global__ void __launch_bounds__(64) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 32 + threadIdx.x / 32 * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  if (row >= m) return;
  wait_for_upstream();
  allow_dependents();
  sum(acc, g, row, column, 0, k);
  store(acc, g, row, column);
}
