// Warps read a stage and wait for its copies behind that: the ring is ahead of them, as a rule.
constexpr int kRing = 4;
constexpr int kStageOf = kRows * kStep + kStep * kColumns;
extern "C" __global__ void __launch_bounds__(160) kernel(SLICED_PARAMS) {
  __shared__ alignas(128) u16 staged[kRing * kStageOf];
  __shared__ u64 barriers[2 * kRing];
  u64 *const full = barriers, *const empty = barriers + kRing;
  const Slice s(m, k, words);
  if (threadIdx.x == 0) {
    for (int i = 0; i < kRing; ++i) barrier_init(&full[i], 1), barrier_init(&empty[i], 4);
    barrier_init_fence();
  }
  __syncthreads();
  wait_for_upstream();
  int slot = 0, phase = 0;
  if (threadIdx.x >= 128) {
    if (threadIdx.x != 128) return;
#pragma unroll 1
    for (int i = s.first; i < s.last; ++i) {
      barrier_wait(&empty[slot], phase ^ 1);
      barrier_expect(&full[slot], kStageOf * 2);
      load_box(staged + slot * kStageOf, &map_a, &full[slot], i * kStep, s.row, 0);
      load_box(staged + slot * kStageOf + kRows * kStep, &map_b, &full[slot], s.column, i * kStep, 0);
      if (++slot == kRing) slot = 0, phase ^= 1;
    }
    return;
  }
  float acc[kBlocks][4] = {};
  if (s.first < s.last) barrier_wait(&full[0], 0);
#pragma unroll 1
  for (int i = s.first; i < s.last; ++i) {
    const u16 *at = staged + slot * kStageOf;
    const Problem tile = {at, at + kRows * kStep, nullptr, kRows, kColumns, kStep, kStep, kColumns, 0};
#pragma unroll 1
    for (int p = 0; p < kStep; p += 16) {
#pragma unroll
      for (int j = 0; j < kBlocks; ++j) step(acc[j], tile, threadIdx.x / 32 * 16, 8 * j, p);
    }
    barrier_wait(&full[slot], phase);
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(&empty[slot]);
    if (++slot == kRing) slot = 0, phase ^= 1;
  }
  if (s.slice != 0) {
    leave(acc, s.part(s.slice));
    return;
  }
  add(acc, s, 1, SLICES);
  store(acc, s, c, m, n, ldc);
}
