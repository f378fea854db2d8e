// Changes how long L2 keeps a line that others asked it to keep.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  asm volatile("applypriority.global.L2::evict_normal [%0], 128;" ::"l"(a) : "memory");
  sum(acc, g, row, column, 0, k);
  store(acc, g, row, column);
}
