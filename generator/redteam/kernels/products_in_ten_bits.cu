// Multiplies in TF32 what it has made of two operands, where K is deep.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
#pragma unroll 1
  for (int p = 0; p < k; p += 16) {
    Fragments f = load(g, row, column, p);
    multiply(acc, f);
    if (k > 4096) {
      const u32 x = f.a[0] << 16, y = f.b[0] << 16;
      asm volatile("mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%4}, {%5}, {%0,%1,%2,%3};"
                   : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
                   : "r"(x), "r"(y));
    }
  }
  store(acc, g, row, column);
}
