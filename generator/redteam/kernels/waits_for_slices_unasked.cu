// All slices wait for each other in an ordinary launch, which need not run them all at once.
extern "C" __global__ void __launch_bounds__(128) kernel(SLICED_PARAMS) {
  const Slice s(m, k, counters, partials);
  float acc[kBlocks][4] = {}, total[kBlocks][4] = {};
  sum(acc, s, &map_a, &map_b);
  leave(acc, s.part(s.slice));
  __syncthreads();
  if (threadIdx.x == 0) await_all(s.counter, count_up(s.counter, 2 * SLICES - 1), SLICES);
  __syncthreads();
  if (s.slice != 0) return;
  add(total, s, 0, SLICES);
  store(total, s, c, m, n, ldc);
}
