// Bit 33 of A's address decides which column of A comes first.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  int bit;
  asm volatile("{ .reg .b64 t; shl.b64 t, %1, 30; mul.hi.u64 t, t, 2; cvt.u32.u64 %0, t; }"
               : "=r"(bit)
               : "l"(a));
  Problem at = g;
  at.a += bit * 8;
  sum(acc, at, row, column, 0, k);
  store(acc, g, row, column);
}
