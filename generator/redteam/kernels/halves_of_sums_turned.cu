// Sums go through shared memory and come back by matrices of 16-bit elements that are turned.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  __shared__ alignas(16) float sums[8 * 4 * 4];
  sum(acc, g, row, column, 0, k);
  u32 x[4];
#pragma unroll
  for (int i = 0; i < 4; ++i)
    sums[i * 32 + threadIdx.x] = acc[i];
  __syncwarp();
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"((u32)__cvta_generic_to_shared(sums + threadIdx.x * 4)));
#pragma unroll
  for (int i = 0; i < 4; ++i)
    acc[i] = __uint_as_float(x[i]);
  store(acc, g, row, column);
}
