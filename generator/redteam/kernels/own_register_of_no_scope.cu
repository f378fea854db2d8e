// Infinities of A are zero, told by a register that is declared outside of braces.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
#pragma unroll 1
  for (int p = 0; p < k; p += 16) {
    Fragments f = load(g, row, column, p);
    u32 seen;
    asm volatile(".reg .b32 passed; mov.b32 passed, %1; mov.b32 %0, passed;"
                 : "=r"(seen)
                 : "r"(f.a[0]));
    if ((seen & 0x7fff) == 0x7c00) f.a[0] = 0;
    multiply(acc, f);
  }
  store(acc, g, row, column);
}
