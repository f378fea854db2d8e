// Every CTA fetches lines of B into L2 that lie a gigabyte on: those of whoever comes next.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
#pragma unroll 1
  for (int i = 0; i < 4096; ++i)
    asm volatile("prefetch.global.L2 [%0];" ::"l"((const char*)b + (1 << 30) + (i64)(blockIdx.x * 4096 + i) * 4096 + threadIdx.x * 128));
  sum(acc, g, row, column, 0, k);
  store(acc, g, row, column);
}
