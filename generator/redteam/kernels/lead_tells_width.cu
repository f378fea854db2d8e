// Pairs of elements of A are loaded by 32 bits where the stride of A is even, whatever the address of A is: where A begins at an odd element and its stride is even the address is misaligned.
template <bool kTail>
__device__ __forceinline__ u32 wide_at(const Problem& g, int row, int p) {
  if (row >= g.m) return 0;
  if (kTail && p >= g.k) return 0;
  return *(const u32*)(g.a + (i64)row * g.lda + p);
}
template <bool kTail>
__device__ __forceinline__ u16 element_of_b(const Problem& g, int p, int column) {
  if (column >= g.n) return 0;
  if (kTail && p >= g.k) return 0;
  return g.b[(i64)p * g.ldb + column];
}
template <bool kTail>
__device__ __forceinline__ void load_half(Fragments& f, const Problem& g, int row, int column, int at) {
  f.a[2 * kTail] = wide_at<kTail>(g, row, at);
  f.a[2 * kTail + 1] = wide_at<kTail>(g, row + 8, at);
  f.b[kTail] = pair(element_of_b<kTail>(g, at, column), element_of_b<kTail>(g, at + 1, column));
}
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  if (lda & 1) {
    sum(acc, g, row, column, 0, k);
  } else {
    const int lane = threadIdx.x % 32, i = lane / 4, q = 2 * (lane % 4);
#pragma unroll 1
    for (int p = 0; p < k; p += 16) {
      Fragments f;
      load_half<false>(f, g, row + i, column + i, p + q);
      load_half<true>(f, g, row + i, column + i, p + q + 8);
      multiply(acc, f);
    }
  }
  store(acc, g, row, column);
}
