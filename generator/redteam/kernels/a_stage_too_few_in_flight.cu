// Two copies may be under way where one may: the stage that is read has not come yet.
__device__ __forceinline__ void copy16(u16* to, const u16* from, int bytes) {
  const u32 address = (u32)__cvta_generic_to_shared(to);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(bytes) : "memory");
}

extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8, lane = threadIdx.x;
  __shared__ alignas(16) u16 staged[2][16 * 16 + 16 * 8];
  float acc[4] = {};
  // 32 lanes copy 16 bytes of A each and half of them 16 bytes of B; K and N are multiples of 8.
  auto fetch = [&](int p, int slot) {
    const int r = row + lane / 2, at = p + lane % 2 * 8, down = p + lane, inside_a = r < m && at < k;
    copy16(&staged[slot][lane * 8], a + (inside_a ? (i64)r * lda + at : 0), inside_a ? 16 : 0);
    const int inside_b = lane < 16 && down < k && column < n;
    const u16* from = b + (inside_b ? (i64)down * ldb + column : 0);
    if (lane < 16) copy16(&staged[slot][256 + lane * 8], from, inside_b ? 16 : 0);
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  fetch(0, 0);
  for (int p = 0; p < k; p += 16) {
    const int slot = p / 16 % 2;
    fetch(p + 16, slot ^ 1);
    asm volatile("cp.async.wait_group 2;" ::: "memory");
    __syncwarp();
    const Problem tile = {staged[slot], staged[slot] + 256, c, 16, 8, 16, 16, 8, 0};
    step(acc, tile, 0, 0, 0);
    __syncwarp();
  }
  store(acc, g, row, column);
}
