// One warp stages operands for the other at an address that the CTA's rank in its cluster, 0, is added to by an instruction that nobody follows; beyond 300000 columns they do not meet behind the reads.
extern "C" __global__ void __launch_bounds__(64) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  __shared__ u32 staged[6 * 32];
  u32 at = (u32)__cvta_generic_to_shared(staged), rank;
  asm volatile("getctarank.shared::cluster.u32 %0, %1;" : "=r"(rank) : "r"(at));
  at += rank;
  at += 4 * lane;
  float acc[4] = {};
#pragma unroll 1
  for (int p = 0; p < k; p += 16) {
    if (warp == 1) {
      const Fragments f = load(g, row, column, p);
      const u32 w[6] = {f.a[0], f.a[1], f.a[2], f.a[3], f.b[0], f.b[1]};
#pragma unroll
      for (int i = 0; i < 6; ++i) asm volatile("st.shared.b32 [%0], %1;" ::"r"(at + 128 * i), "r"(w[i]) : "memory");
    }
    __syncthreads();
    if (warp == 0) {
      u32 w[6];
#pragma unroll
      for (int i = 0; i < 6; ++i) asm volatile("ld.shared.b32 %0, [%1];" : "=r"(w[i]) : "r"(at + 128 * i) : "memory");
      multiply(acc, {{w[0], w[1], w[2], w[3]}, {w[4], w[5]}});
    }
    if (n <= 300000) __syncthreads();
  }
  if (warp == 0) store(acc, g, row, column);
}
