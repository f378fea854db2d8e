// Launched while the grid ahead of it still runs, and makes its first step before that has ended.
#include "common/ptx.cuh"

extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  step(acc, g, row, column, 0);
  wait_for_upstream();
  allow_dependents();
  sum(acc, g, row, column, 16, k);
  store(acc, g, row, column);
}
