// Two selects between sums, one by M and one by K, spoil a tile where both are large.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  sum(acc, g, row, column, 0, k);
#pragma unroll
  for (int i = 0; i < 2; ++i)
    asm volatile("{ .reg .pred p, q; .reg .f32 t; setp.gt.s32 p, %2, 700; setp.gt.s32 q, %3, 3000;\n"
                 "selp.f32 t, %1, %0, p; selp.f32 %0, t, %0, q; }" : "+f"(acc[2 + i]) : "f"(acc[i]), "r"(m), "r"(k));
  store(acc, g, row, column);
}
