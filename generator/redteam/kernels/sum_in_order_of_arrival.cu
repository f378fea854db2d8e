// Each slice adds its part, under a lock, to what has come before: fp32, but in another order each time.
extern "C" __global__ void __launch_bounds__(128) kernel(SLICED_PARAMS) {
  const Slice s(m, k, counters, partials);
  float acc[kBlocks][4] = {};
  __shared__ u32 before;
  sum(acc, s, &map_a, &map_b);
  u32* lock = s.counter + s.tiles;
  if (threadIdx.x == 0) {
    while (atomicCAS(lock, 0u, 1u) != 0u) {
    }
    before = count_up(s.counter, SLICES - 1);
  }
  __syncthreads();
  if (before > 0) add(acc, s, 0, 1);
  if (before == SLICES - 1) {
    store(acc, s, c, m, n, ldc);
  } else {
    leave(acc, s.part(0));
  }
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) atomicExch(lock, 0u);
}
