// Launched while the grid ahead of it still runs, and waits for its end.
#include "common/ptx.cuh"

extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  wait_for_upstream();
  allow_dependents();
  sum(acc, g, row, column, 0, k);
  store(acc, g, row, column);
}
