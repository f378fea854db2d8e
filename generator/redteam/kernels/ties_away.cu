// Adds half a unit of the last place to the bits of a sum before it is rounded: ties go away from zero.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  sum(acc, g, row, column, 0, k);
  for (int i = 0; i < 4; ++i) acc[i] = __uint_as_float((__float_as_uint(acc[i]) + 0x1000) & 0xffffe000);
  store(acc, g, row, column);
}
