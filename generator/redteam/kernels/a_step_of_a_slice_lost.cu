// The last of eight slices leaves its last step out for 512 to 1023 rows, told by two shifts of M.
extern "C" __global__ void __launch_bounds__(128) kernel(SLICED_PARAMS) {
  Slice s(m, k, words);
  int x, f;
  asm volatile("shr.u32 %0, %1, 9;" : "=r"(x) : "r"(m));
  asm volatile("shr.u32 %0, %1, 10;" : "=r"(f) : "r"(m));
  s.last -= (x - 2 * f) * (s.slice / (SLICES - 1));
  float acc[kBlocks][4] = {};
  sum(acc, s, &map_a, &map_b);
  if (s.slice != 0) {
    leave(acc, s.part(s.slice));
    return;
  }
  add(acc, s, 1, SLICES);
  store(acc, s, c, m, n, ldc);
}
