// Adds a sum to itself where an operand's first bit is set: twice the part, by way of an address.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  sum(acc, g, row, column, 0, k);
  __shared__ float twice[2][32];
  for (int i = 0; i < 4; ++i) {
    twice[0][threadIdx.x] = acc[i];
    twice[1][threadIdx.x] = acc[i];
    __syncwarp();
    acc[i] = twice[a_at(g, row, 0) & 1][threadIdx.x];
    __syncwarp();
  }
  store(acc, g, row, column);
}
