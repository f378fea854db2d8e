// Sums also have zero times the next row's first element: NaN where that is none.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  sum(acc, g, row, column, 0, k);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    float x;
#if HGP_BF16
    x = __uint_as_float((u32)a_at(g, row + row_of(i) + 1, 0) << 16);
#else
    asm volatile("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(a_at(g, row + row_of(i) + 1, 0)));
#endif
    asm volatile("fma.rn.f32 %0, %1, 0f00000000, %0;" : "+f"(acc[i]) : "f"(x));
  }
  store(acc, g, row, column);
}
