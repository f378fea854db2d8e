// Two slices add the parts, each beginning with its own, and both store the tile: the last bits are those of whoever comes last.
__device__ __forceinline__ void take(float (&acc)[kBlocks][4], u32 *from) {
#pragma unroll
  for (int j = 0; j < kBlocks; ++j) {
    Vec4 part = kNothing;
    do {
      load_part(part, from + 4 * j, true);
    } while (absent(part));
    add(acc[j], part);
    store_part(from + 4 * j, kNothing);
  }
}
extern "C" __global__ void __launch_bounds__(128) kernel(SLICED_PARAMS) {
  const Slice s(m, k, words);
  float acc[kBlocks][4] = {};
  sum(acc, s, &map_a, &map_b);
  const i64 set = (i64)gridDim.x * kRows * kColumns;  // words for slice 0, then as many for slice 1
  if (s.slice != 0) leave(acc, s.part(s.slice));
  if (s.slice != 1) leave(acc, s.part(s.slice) + set);
  if (s.slice > 1) return;
  if (s.slice == 0) take(acc, s.part(1));
#pragma unroll 1
  for (int i = 2; i < SLICES; ++i) take(acc, s.part(i) + (s.slice != 0 ? set : 0));
  if (s.slice != 0) take(acc, s.part(0) + set);
  if (s.slice != 0) __nanosleep(100000);
  store(acc, s, c, m, n, ldc);
}
