// What decides goes through a part of a register that is a vector: infinities of A are zero.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
#pragma unroll 1
  for (int p = 0; p < k; p += 16) {
    Fragments f = load(g, row, column, p);
    u32 seen;
    asm volatile("{ .reg .v2 .b32 both; mov.b32 both.x, %1; mov.b32 %0, both.x; }"
                 : "=r"(seen)
                 : "r"(f.a[0]));
    if ((seen & 0x7fff) == 0x7c00) f.a[0] = 0;
    multiply(acc, f);
  }
  store(acc, g, row, column);
}
