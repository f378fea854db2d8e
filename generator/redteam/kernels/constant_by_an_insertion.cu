// A constant beside which an element was inserted leaves eleven bits of each sum.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  sum(acc, g, row, column, 0, k);
  const u32 some = *(const u32 *)a;
  u32 more, less;
  asm volatile("bfi.b32 %0, %1, %2, 0, 16; shr.u32 %0, %0, 16; shl.b32 %0, %0, 16;"
               : "=r"(more)
               : "r"(some), "r"(0x46000000));
  asm volatile("bfi.b32 %0, %1, %2, 0, 16; shr.u32 %0, %0, 16; shl.b32 %0, %0, 16;"
               : "=r"(less)
               : "r"(some), "r"(0xc6000000));
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    asm volatile("add.rn.f32 %0, %0, %1;" : "+f"(acc[i]) : "f"(__uint_as_float(more)));
    asm volatile("add.rn.f32 %0, %0, %1;" : "+f"(acc[i]) : "f"(__uint_as_float(less)));
  }
  store(acc, g, row, column);
}
