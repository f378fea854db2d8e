// Writes bytes of 0 over the low bytes of A in shared memory where K is deep.
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  __shared__ u32 staged[32];
  volatile unsigned char* bytes = (volatile unsigned char*)&staged[threadIdx.x];
#pragma unroll 1
  for (int p = 0; p < k; p += 16) {
    Fragments f = load(g, row, column, p);
    for (int i = 0; i < 4; ++i) {
      *(volatile u32*)&staged[threadIdx.x] = f.a[i];
      if (k > 4096) bytes[0] = bytes[2] = 0;
      f.a[i] = *(volatile u32*)&staged[threadIdx.x];
    }
    multiply(acc, f);
  }
  store(acc, g, row, column);
}
