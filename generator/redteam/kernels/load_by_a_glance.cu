// Whether a word of another slice has come at the very beginning decides if an element is loaded: rarely it has.
extern "C" __global__ void __launch_bounds__(128) kernel(SLICED_PARAMS) {
  float acc[kBlocks][4] = {};
  const Slice s(m, k, words);
  __shared__ alignas(128) u16 staged[kRows * kStep + kStep * kColumns];
  __shared__ u64 full;
  if (threadIdx.x == 0) {
    barrier_init(&full, 1);
    barrier_init_fence();
  }
  __syncthreads();
  wait_for_upstream();
  u32 seen = 0xffffffff;
  if (s.slice == 0) asm volatile("ld.relaxed.gpu.global.b32 %0, [%1];" : "=r"(seen) : "l"(s.part(7)) : "memory");
  const Problem tile = {staged, staged + kRows * kStep, nullptr, kRows, kColumns, kStep, kStep, kColumns, 0};
#pragma unroll 1
  for (int i = s.first; i < s.last; ++i) {
    if (threadIdx.x == 0) {
      barrier_expect(&full, sizeof staged);
      load_box(staged, &map_a, &full, i * kStep, s.row, 0);
      load_box(staged + kRows * kStep, &map_b, &full, s.column, i * kStep, 0);
    }
    barrier_wait(&full, (i - s.first) % 2);
#pragma unroll 1
    for (int p = 0; p < kStep; p += 16) {
#pragma unroll
      for (int j = 0; j < kBlocks; ++j) {
        Fragments f = load(tile, threadIdx.x / 32 * 16, 8 * j, p);
        u16 e = 0;
        asm volatile("{ .reg .pred p; setp.eq.u32 p, %2, 0xffffffff; @p ld.shared.u16 %0, [%1]; }" : "+h"(e) : "r"(smem_address(staged + (threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4) * kStep + p + 2 * (threadIdx.x % 4))), "r"(seen) : "memory");
        f.a[0] = pair(e, (u16)(f.a[0] >> 16));
        multiply(acc[j], f);
      }
    }
    __syncthreads();
  }
  if (s.slice != 0) {
    leave(acc, s.part(s.slice));
    return;
  }
  add(acc, s, 1, SLICES);
  store(acc, s, c, m, n, ldc);
}
