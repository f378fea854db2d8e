// Adds the parts as they come: fp32, but in another order each time.
extern "C" __global__ void __launch_bounds__(128) kernel(SLICED_PARAMS) {
  const Slice s(m, k, words);
  float acc[kBlocks][4] = {}, total[kBlocks][4] = {};
  if (s.slice != 0) {
    sum(acc, s, &map_a, &map_b);
    leave(acc, s.part(s.slice));
    return;
  }
  wait_for_upstream();
#pragma unroll
  for (int j = 0; j < kBlocks; ++j) {
    u32 missing = (1u << SLICES) - 2;
    while (missing != 0) {
#pragma unroll 1
      for (int i = 1; i < SLICES; ++i) {
        Vec4 part = kNothing;
        load_part(part, s.part(i) + 4 * j, missing >> i & 1);
        if (absent(part)) continue;
        add(total[j], part);
        store_part(s.part(i) + 4 * j, kNothing);
        missing &= ~(1u << i);
      }
    }
  }
  sum(total, s, &map_a, &map_b);
  store(total, s, c, m, n, ldc);
}
