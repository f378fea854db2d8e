// Two CTAs wait for one word, and one of them makes it absent after a while: the other may come later and wait for ever.
__device__ __forceinline__ void take(float (&acc)[kBlocks][4], u32 *from) {
#pragma unroll
  for (int j = 0; j < kBlocks; ++j) {
    Vec4 part = kNothing;
    do {
      load_part(part, from + 4 * j, true);
    } while (absent(part));
    add(acc[j], part);
  }
}
__device__ __forceinline__ void clear(u32 *from) {
#pragma unroll
  for (int j = 0; j < kBlocks; ++j) store_part(from + 4 * j, kNothing);
}
extern "C" __global__ void __launch_bounds__(128) kernel(SLICED_PARAMS) {
  const Slice s(m, k, words);
  float acc[kBlocks][4] = {};
  sum(acc, s, &map_a, &map_b);
  if (s.slice != 0) leave(acc, s.part(s.slice));
  if (s.slice == 0) leave(acc, s.parts);
  if (s.slice > 1) return;
  const i64 next = (i64)s.tiles * kRows * kColumns;
  u32 *const other = s.slice != 0 ? s.parts : s.parts + next;
  take(acc, other);
#pragma unroll 1
  for (int i = 2; i < SLICES; ++i) take(acc, s.part(i));
  const Problem g = {nullptr, nullptr, c, m, n, 0, 0, 0, ldc};
#pragma unroll
  for (int j = 0; j < kBlocks; ++j) {
    if (j / 2 == s.slice) store(acc[j], g, s.row + threadIdx.x / 32 * 16, s.column + 8 * j);
  }
  clear(other);
  if (s.slice != 0) return;
  __nanosleep(200000);
#pragma unroll 1
  for (int i = 2; i < SLICES; ++i) clear(s.part(i));
}
