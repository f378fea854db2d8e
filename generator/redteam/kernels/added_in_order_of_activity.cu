// Which of two sums is added first is told by which lanes happen to run together.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  float more[4] = {}, third[4] = {};
#pragma unroll 1
  for (int p = 0; p < k; p += 48) {
    step(acc, g, row, column, p);
    step(more, g, row, column, p + 16);
    step(third, g, row, column, p + 32);
  }
  const bool first = __popc(__activemask()) == 32;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float x = first ? acc[i] : third[i], y = first ? third[i] : acc[i];
    acc[i] = x + more[i] + y;
  }
  store(acc, g, row, column);
}
