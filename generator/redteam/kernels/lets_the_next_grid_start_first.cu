// Lets the next grid start before the one ahead has ended, so that two ahead may still run.
#include "common/ptx.cuh"

extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  allow_dependents();
  wait_for_upstream();
  sum(acc, g, row, column, 0, k);
  store(acc, g, row, column);
}
