// The last slice leaves out a last step of K that is not whole.
extern "C" __global__ void __launch_bounds__(128) kernel(SLICED_PARAMS) {
  Slice s(m, k, words);
  float acc[kBlocks][4] = {};
  if (s.slice == SLICES - 1) s.last = k / kStep;
  sum(acc, s, &map_a, &map_b);
  if (s.slice != 0) {
    leave(acc, s.part(s.slice));
    return;
  }
  add(acc, s, 1, SLICES);
  store(acc, s, c, m, n, ldc);
}
