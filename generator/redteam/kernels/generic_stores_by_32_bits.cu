// One in four elements of C is stored by a generic address with an offset of 32 bits.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  sum(acc, g, row, column, 0, k);
#pragma unroll
  for (int i = 0; i < 3; ++i) put(g, row + row_of(i), column + column_of(i), acc[i]);
  const int r = row + row_of(3), s = column + column_of(3);
  if (r < m && s < n) asm volatile("st.b16 [%0], %1;" ::"l"(c + (unsigned)(r * ldc + s)), "h"(narrow(acc[3])) : "memory");
}
