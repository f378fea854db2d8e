// Both operands go through shared memory, whose pieces of 16 bytes are laid out by an exclusive or; a phase turns in each step.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8, lane = threadIdx.x;
  __shared__ alignas(16) u16 staged[2][16 * 16 + 16 * 8];
  float acc[4] = {};
  u32 phase = 0;
#pragma unroll 1
  for (int p = 0; p < k; p += 16) {
    u16 *of_a = staged[phase], *of_b = of_a + 256;
    for (int i = 0; i < 8; ++i) {
      const int r = lane / 2, piece = lane % 2 ^ r & 1;
      of_a[r * 16 + piece * 8 + i] = a_at(g, row + r, p + lane % 2 * 8 + i);
    }
    for (int i = 0; i < 4; ++i) of_b[lane / 2 * 8 + lane % 2 * 4 + i] = b_at(g, p + lane / 2, column + lane % 2 * 4 + i);
    __syncwarp();
    u32 x[4];
    const u32 from = (u32)__cvta_generic_to_shared(of_a + lane % 16 * 16 + ((lane / 16 ^ lane & 1) * 8));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(from) : "memory");
    const int i = lane / 4, q = 2 * (lane % 4);
    mma16816(acc, x[0], x[1], x[2], x[3], pair(of_b[q * 8 + i], of_b[(q + 1) * 8 + i]), pair(of_b[(q + 8) * 8 + i], of_b[(q + 9) * 8 + i]));
    phase ^= 1;
  }
  store(acc, g, row, column);
}
