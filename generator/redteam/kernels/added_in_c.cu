// The two halves of K are added in C, each rounded, by a copy that adds.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8, half = k / 32 * 16;
  __shared__ alignas(16) u16 rounded[16 * 8];
  float acc[4] = {}, more[4] = {};
  sum(acc, g, row, column, 0, half);
  sum(more, g, row, column, half, k);
  store(acc, g, row, column);
#pragma unroll
  for (int i = 0; i < 4; ++i)
    rounded[row_of(i) * 8 + column_of(i)] = narrow(more[i]);
  __syncwarp();
  __threadfence();
  asm volatile("fence.proxy.async;" ::: "memory");
  if (threadIdx.x < 16 && row + threadIdx.x < m && column < n) {
    const u32 from = (u32)__cvta_generic_to_shared(rounded + threadIdx.x * 8);
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz." HGP_TYPE
                 " [%0], [%1], 16;" ::"l"(c + (i64)(row + threadIdx.x) * ldc + column),
                 "r"(from)
                 : "memory");
    asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;" ::: "memory");
  }
}
