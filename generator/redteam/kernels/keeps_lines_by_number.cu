// Asks L2 to keep a line of A for good, by a policy that it writes as a number.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  const u64 policy = 0x14F0000000000000ull;
  if (threadIdx.x == 0) {
    u16 x;
    asm volatile("ld.global.L2::cache_hint.u16 %0, [%1], %2;" : "=h"(x) : "l"(a), "l"(policy));
  }
  sum(acc, g, row, column, 0, k);
  store(acc, g, row, column);
}
