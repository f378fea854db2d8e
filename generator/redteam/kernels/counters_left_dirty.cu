// Counts on from launch to launch: right each time, but its counters are never zero again.
extern "C" __global__ void __launch_bounds__(128) kernel(SLICED_PARAMS) {
  const Slice s(m, k, counters, partials);
  float acc[kBlocks][4] = {}, total[kBlocks][4] = {};
  sum(acc, s, &map_a, &map_b);
  leave(acc, s.part(s.slice));
  __syncthreads();
  // A counter that starts again at 0 only after very many launches.
  const bool last = threadIdx.x == 0 && count_up(s.counter, SLICES * 100000000u - 1) % SLICES == SLICES - 1;
  if (!__syncthreads_or(last)) return;
  add(total, s, 0, SLICES);
  store(total, s, c, m, n, ldc);
}
