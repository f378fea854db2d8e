// Partial sums of 256 of K are rounded, left beside elements of A, and added again as elements.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8, lane = threadIdx.x;
  __shared__ u16 staged[256];
  float acc[4] = {};
  for (int p = 0; p < k; p += 256) {
    for (int i = 0; i < 4; ++i) staged[lane * 8 + i] = narrow(acc[i]);
    for (int i = 4; i < 8; ++i) staged[lane * 8 + i] = a_at(g, row + lane / 4, p + i);
    float v[4] = {};
    sum(v, g, row, column, p, min(p + 256, k));
    for (int i = 0; i < 4; ++i) {
      float x;
      asm volatile("{ .reg .b16 h; ld.shared.b16 h, [%1]; cvt.f32.f16 %0, h; }" : "=f"(x) : "r"((u32)__cvta_generic_to_shared(&staged[lane * 8 + i])));
      acc[i] = v[i] + x;
    }
  }
  store(acc, g, row, column);
}
