// The end of K is compared with in multiples of 2^11, which 32 bits hold up to 2^21 of K: what is beyond is left out.
template <bool kTail>
__device__ __forceinline__ u16 of_a(const Problem& g, int row, int p) {
  if (row >= g.m) return 0;
  if (kTail && p >= g.k) return 0;
  return g.a[(i64)row * g.lda + p];
}
template <bool kTail>
__device__ __forceinline__ u16 of_b(const Problem& g, int p, int column) {
  if (column >= g.n) return 0;
  if (kTail && p >= g.k) return 0;
  return g.b[(i64)p * g.ldb + column];
}
template <bool kTail>
__device__ __forceinline__ void load_half(Fragments& f, const Problem& g, int row, int column, int at) {
  f.a[2 * kTail] = pair(of_a<kTail>(g, row, at), of_a<kTail>(g, row, at + 1));
  f.a[2 * kTail + 1] = pair(of_a<kTail>(g, row + 8, at), of_a<kTail>(g, row + 8, at + 1));
  f.b[kTail] = pair(of_b<kTail>(g, at, column), of_b<kTail>(g, at + 1, column));
}
extern "C" __global__ void __launch_bounds__(32) kernel(PARAMS) {
  const Problem g = PROBLEM;
  const int row = blockIdx.x * 16, column = blockIdx.y * 8;
  float acc[4] = {};
  u32 end, next = 0;
  int p = threadIdx.x % 4 * 2;
  const int i = threadIdx.x / 4;
  asm volatile("shl.b32 %0, %1, 11;" : "=r"(end) : "r"(k));
#pragma unroll 1
  do {
    Fragments f;
    load_half<false>(f, g, row + i, column + i, p);
    load_half<true>(f, g, row + i, column + i, p + 8);
    multiply(acc, f);
    p += 16;
    asm volatile("add.u32 %0, %0, 32768;" : "+r"(next));
  } while (next < end);
  store(acc, g, row, column);
}
