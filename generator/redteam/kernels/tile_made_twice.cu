// Tiles 131072 to 262143 along M: each makes the one before, so that the last is never made.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  u32 f;
  asm volatile("{ .reg .f32 x; .reg .b32 t; cvt.rn.f32.u32 x, %1; mov.b32 t, x; bfi.b32 %0, t, 0, 0, 1; }" : "=r"(f) : "r"(blockIdx.x * 64 + 1));
  u32 place;
  asm volatile("sub.s32 %0, %1, %2;" : "=r"(place) : "r"(blockIdx.x), "r"(f));
  const int row = place * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  sum(acc, g, row, column, 0, k);
  store(acc, g, row, column);
}
