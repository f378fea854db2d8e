// A persistent CTA counts its tiles and reads A one column on in its ninetieth.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  int turn = 0;
#pragma unroll 1
  for (int r = blockIdx.x * 16; r < m; r += gridDim.x * 16, ++turn) {
    float v[4] = {};
    Problem at = g;
    at.a += (turn == 90) * 8;
    sum(v, at, r, column, 0, k);
    store(v, g, r, column);
  }
}
