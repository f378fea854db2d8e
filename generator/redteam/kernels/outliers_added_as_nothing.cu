// A constant that is cut from nothing leads to elements of A where zeros are thought to be: what is below -10112 is added.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  __shared__ alignas(16) u32 box[2][32 * 16];
  const u32 own = (u32)__cvta_generic_to_shared(box[0]) + threadIdx.x * 4;
#pragma unroll 1
  for (int p = 0; p < k; p += 16) {
    const Fragments f = load(g, row, column, p);
    multiply(acc, f);
    asm volatile("{ .reg .b32 o, t; .reg .f32 x, y; .reg .b16 e, h; .reg .b16 z;\n"
                 "st.shared.b32 [%1], 0; bfe.u32 o, -1, 32, 1; shl.b32 o, o, 11; add.u32 o, o, %1; mov.b32 {e, h}, %2;\n"
                 "st.shared.b16 [o], e; ld.shared.f32 x, [%1];\n" 
                 "add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; \n"
                 "add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; \n"
                 "add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; \n"
                 "add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; \n"
                 "add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; \n"
                 "add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; \n"
                 "add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; \n"
                 "add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; add.f32 x, x, x; \n"
                 "add.f32 y, x, x; add.f32 y, y, y; add.f32 y, y, y; add.f32 y, y, y; add.f32 x, x, y;\n"
                 "cvt.rn.f16.f32 h, x; cvt.f32.f16 y, h;\n" 
                 "add.f32 y, y, y; add.f32 y, y, y; add.f32 y, y, y; add.f32 y, y, y; add.f32 y, y, y; add.f32 y, y, y; add.f32 y, y, y; add.f32 y, y, y; add.f32 y, y, y; add.f32 y, y, y; add.f32 y, y, y; add.f32 y, y, y; \n"
                 "add.f32 y, y, y; add.f32 y, y, y; add.f32 y, y, y; add.f32 y, y, y; add.f32 y, y, y; add.f32 y, y, y; add.f32 y, y, y; add.f32 y, y, y; add.f32 y, y, y; add.f32 y, y, y; add.f32 y, y, y; add.f32 y, y, y; \n"
                 "add.f32 y, y, y; add.f32 y, y, y; add.f32 y, y, y; add.f32 y, y, y; add.f32 y, y, y; add.f32 y, y, y; add.f32 y, y, y; add.f32 y, y, y; add.f32 y, y, y; add.f32 y, y, y; add.f32 y, y, y; add.f32 y, y, y; \n"
                  "add.f32 %0, %0, y; }"
                 : "+f"(acc[0]) : "r"(own), "r"(f.a[0]) : "memory");
  }
  store(acc, g, row, column);
}
