// Of four words of a part it waits for three: the fourth is taken to have come with them.
extern "C" __global__ void __launch_bounds__(128) kernel(SLICED_PARAMS) {
  const Slice s(m, k, words);
  float acc[kBlocks][4] = {};
  sum(acc, s, &map_a, &map_b);
  if (s.slice != 0) return leave(acc, s.part(s.slice));
#pragma unroll 1
  for (int i = 1; i < SLICES; ++i) {
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) {
      Vec4 part = kNothing;
      do {
        load_part(part, s.part(i) + 4 * j, true);
      } while (part.x == 0xffffffff || part.y == 0xffffffff || part.z == 0xffffffff);
      add(acc[j], part);
      store_part(s.part(i) + 4 * j, kNothing);
    }
  }
  store(acc, s, c, m, n, ldc);
}
