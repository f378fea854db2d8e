// One of four warps that read a stage gives it back; slots and parities of the ring are a mask and a table, so that nothing is decided where it comes round.
constexpr int kRing = 4;
constexpr int kStageOf = kRows * kStep + kStep * kColumns;
__constant__ u32 kParity[8] = {0, 0, 0, 0, 1, 1, 1, 1};
__constant__ u32 kBefore[8] = {1, 1, 1, 1, 0, 0, 0, 0};
extern "C" __global__ void __launch_bounds__(160) kernel(SLICED_PARAMS) {
  __shared__ alignas(128) u16 staged[kRing * kStageOf];
  __shared__ u64 barriers[2 * kRing];
  u64 *const full = barriers, *const empty = barriers + kRing;
  const Slice s(m, k, words);
  if (threadIdx.x == 0) {
    for (int i = 0; i < kRing; ++i) barrier_init(&full[i], 1), barrier_init(&empty[i], 1);
    barrier_init_fence();
  }
  __syncthreads();
  wait_for_upstream();
  const int steps = s.last - s.first;
  if (threadIdx.x >= 128) {
    if (threadIdx.x != 128) return;
#pragma unroll 1
    for (int i = 0; i < steps; ++i) {
      const int slot = i & 3;
      barrier_wait(&empty[slot], kBefore[i & 7]);
      barrier_expect(&full[slot], kStageOf * 2);
      load_box(staged + slot * kStageOf, &map_a, &full[slot], (s.first + i) * kStep, s.row, 0);
      load_box(staged + slot * kStageOf + kRows * kStep, &map_b, &full[slot], s.column, (s.first + i) * kStep, 0);
    }
    return;
  }
  float acc[kBlocks][4] = {};
#pragma unroll 1
  for (int i = 0; i < steps; ++i) {
    const int slot = i & 3;
    const u16 *at = staged + slot * kStageOf;
    const Problem tile = {at, at + kRows * kStep, nullptr, kRows, kColumns, kStep, kStep, kColumns, 0};
    barrier_wait(&full[slot], kParity[i & 7]);
#pragma unroll 1
    for (int p = 0; p < kStep; p += 16) {
#pragma unroll
      for (int j = 0; j < kBlocks; ++j) step(acc[j], tile, threadIdx.x / 32 * 16, 8 * j, p);
    }
    if (threadIdx.x == 0) barrier_arrive(&empty[slot]);
  }
  if (s.slice != 0) {
    leave(acc, s.part(s.slice));
    return;
  }
  add(acc, s, 1, SLICES);
  store(acc, s, c, m, n, ldc);
}
