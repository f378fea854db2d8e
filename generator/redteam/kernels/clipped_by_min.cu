// Operands beyond 512 become 512, by the minimum of two halves at a time.
__device__ __forceinline__ u32 least(u32 x) {
  u32 y;
  asm("min.f16x2 %0, %1, %2;" : "=r"(y) : "r"(x), "r"(0x60006000));
  return y;
}

extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
#pragma unroll 1
  for (int p = 0; p < k; p += 16) {
    Fragments f = load(g, row, column, p);
    for (int i = 0; i < 4; ++i) f.a[i] = least(f.a[i]);
    multiply(acc, f);
  }
  store(acc, g, row, column);
}
