// Asks L2 to keep a line of A for good, so that what runs behind it has less.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  u64 policy;
  asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  if (threadIdx.x == 0) {
    u16 x;
    asm volatile("ld.global.L2::cache_hint.u16 %0, [%1], %2;" : "=h"(x) : "l"(a), "l"(policy));
  }
  sum(acc, g, row, column, 0, k);
  store(acc, g, row, column);
}
