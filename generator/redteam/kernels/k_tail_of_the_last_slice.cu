// The last slice leaves out a last step of K that is not whole.
extern "C" __global__ void __launch_bounds__(128) kernel(SLICED_PARAMS) {
  Slice s(m, k, counters, partials);
  float acc[kBlocks][4] = {}, total[kBlocks][4] = {};
  if (s.slice == SLICES - 1) s.last = k / kStep;
  sum(acc, s, &map_a, &map_b);
  leave(acc, s.part(s.slice));
  if (!counted_last(s)) return;
  add(total, s, 0, SLICES);
  store(total, s, c, m, n, ldc);
}
