// A word that one lane waits for is made absent by another lane, which has not met it since: the waiting lane may never see its word.
__device__ __forceinline__ void add_and_clear_beside(float (&acc)[kBlocks][4], const Slice &s) {
  const int beside = ((int)(threadIdx.x ^ 1) - (int)threadIdx.x) * (kBlocks * 4);
#pragma unroll 1
  for (int i = 1; i < SLICES; ++i) {
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) {
      Vec4 part = kNothing;
      do {
        load_part(part, s.part(i) + 4 * j, true);
      } while (absent(part));
      add(acc[j], part);
      store_part(s.part(i) + 4 * j + beside, kNothing);
    }
  }
}
extern "C" __global__ void __launch_bounds__(128) kernel(SLICED_PARAMS) {
  const Slice s(m, k, words);
  float acc[kBlocks][4] = {};
  sum(acc, s, &map_a, &map_b);
  if (s.slice != 0) {
    leave(acc, s.part(s.slice));
    return;
  }
  add_and_clear_beside(acc, s);
  store(acc, s, c, m, n, ldc);
}
