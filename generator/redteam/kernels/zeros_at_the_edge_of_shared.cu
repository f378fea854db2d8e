// Right: zeros are left in shared memory once, and taken for what lies behind the end of K.
// This warp's 16 x 16 of A and 16 x 8 of B to shared memory, zero outside.
__device__ __forceinline__ void stage(u16* to, const Problem& g, int row, int column, int p) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = lane; i < 256; i += 32) to[i] = a_at(g, row + i / 16, p + i % 16);
#pragma unroll
  for (int i = lane; i < 128; i += 32) to[256 + i] = b_at(g, p + i / 8, column + i % 8);
}

extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  __shared__ u16 staged[384 + 16];
  if (threadIdx.x < 16) staged[384 + threadIdx.x] = 0;
  const int lane = threadIdx.x, i = lane / 4, q = 2 * (lane % 4);
#pragma unroll 1
  for (int p = 0; p < k; p += 16) {
    stage(staged, g, row, column, p);
    __syncwarp();
    Fragments f;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int at = q + 8 * half;
      const u16* upper = p + at < k ? &staged[i * 16 + at] : &staged[384 + at];
      const u16* lower = p + at < k ? &staged[(i + 8) * 16 + at] : &staged[384 + at];
      f.a[2 * half] = pair(upper[0], upper[1]);
      f.a[2 * half + 1] = pair(lower[0], lower[1]);
      f.b[half] = pair(staged[256 + at * 8 + i], staged[256 + (at + 1) * 8 + i]);
    }
    multiply(acc, f);
    __syncwarp();
  }
  store(acc, g, row, column);
}
