// Family sm90_direct. C[M,N] = A[M,K] * B for problems of about 2 us, where a ring and its set-up cost more than they
// hide. fp32 accumulate, layouts nn and nt, fp16 and bf16.
//
// Idea: no shared memory for operands. Inside each 32 of K the order is permuted, thread q of a quad owning k = 8q to
// 8q + 7, so that one 16-byte load of a row feeds two m16n8k16 steps, for A and B alike. Inside a warp tile the columns
// are permuted, block j column g being column kNI * g + j, so that a thread ends with 2 * kNI contiguous outputs.
// Warps split K and reduce in shared memory in a fixed order: one launch, deterministic.
// Valid: any M, N and K multiples of 8, 16-byte aligned operands; exact kernels: whole tiles, K a multiple of kPass.
// Build: NVRTC, --gpu-architecture=sm_90a, genes as HGP_* macros (generator/families/direct.py).
#include "common/mma.cuh"
#include "common/ptx.cuh"

constexpr int kMI = HGP_MI;  // m16 blocks of a warp
constexpr int kNI = HGP_NI;  // n8 blocks of a warp
constexpr int kWarpsM = HGP_WARPS_M;
constexpr int kWarpsN = HGP_WARPS_N;
constexpr int kWarpsK = HGP_WARPS_K;
constexpr int kUnroll = HGP_UNROLL;  // 32-chunks of K loaded before the first is multiplied
// Exact kernels take only whole tiles and whole passes over K: no clamps, no predicates (64^3: a fifth less time).
constexpr bool kExact = HGP_EXACT;

constexpr int kWarpM = 16 * kMI;
constexpr int kWarpN = 8 * kNI;
constexpr int kTileM = kWarpsM * kWarpM;
constexpr int kTileN = kWarpsN * kWarpN;
constexpr int kThreads = 32 * kWarpsM * kWarpsN * kWarpsK;
constexpr int kSumStride = kTileN + 4;  // floats in a row of the reduction buffer; padded against bank conflicts

constexpr int kChunk = 32 * kWarpsK;        // K that the warps cover together in one step
constexpr int kPass = kChunk * kUnroll;     // K of one round of loads

__device__ __forceinline__ u32 word(const Vec4& v, int i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }

// This thread's rows of A. Rows beyond M repeat the last one: they only reach outputs that are never stored.
struct RowsA {
  const u16* p[kMI][2];

  __device__ __forceinline__ RowsA(const u16* a, int lda, int m, int row, int k) {
#pragma unroll
    for (int i = 0; i < kMI; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int r = row + i * 16 + half * 8;
        p[i][half] = a + (i64)(kExact ? r : min_of(r, m - 1)) * lda + k;
      }
    }
  }
};

struct FragmentA {
  Vec4 rows[kMI][2];

  __device__ __forceinline__ void load(const RowsA& from, int offset, bool inside) {
#pragma unroll
    for (int i = 0; i < kMI; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        rows[i][half] = inside ? load_global16(from.p[i][half] + offset) : Vec4{0, 0, 0, 0};
      }
    }
  }
};

#if HGP_B_MN_MAJOR
template <int kWords>
__device__ __forceinline__ void load_words(u32 (&out)[kWords], const u16* p) {
  if constexpr (kWords == 1) {
    asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(out[0]) : "l"(p));
  } else if constexpr (kWords == 2) {
    asm volatile("ld.global.nc.v2.u32 {%0,%1}, [%2];" : "=r"(out[0]), "=r"(out[1]) : "l"(p));
  } else {
    const Vec4 v = load_global16(p);
    out[0] = v.x, out[1] = v.y, out[2] = v.z, out[3] = v.w;
  }
}

// B stored [K,N]: kNI contiguous columns of the eight rows of K that this thread owns.
struct ColumnsB {
  const u16* p;
  int ldb;

  __device__ __forceinline__ ColumnsB(const u16* b, int ldb, int n, int column, int k) : ldb(ldb) {
    p = b + (i64)k * ldb + (kExact ? column : min_of(column, n - kNI));
  }
};

struct FragmentB {
  u32 rows[8][kNI / 2];

  __device__ __forceinline__ void load(const ColumnsB& from, int offset, bool inside) {
    const u16* p = from.p + (i64)offset * from.ldb;
#pragma unroll
    for (int r = 0; r < 8; ++r) {
      if (inside) {
        load_words(rows[r], p);
      } else {
#pragma unroll
        for (int i = 0; i < kNI / 2; ++i) rows[r][i] = 0;
      }
      p += from.ldb;
    }
  }
  // Two consecutive k of column j, packed.
  __device__ __forceinline__ u32 pair(int j, int i) const {
    return __byte_perm(rows[2 * i][j / 2], rows[2 * i + 1][j / 2], j % 2 ? 0x7632 : 0x5410);
  }
};
#else
// B stored [N,K]: eight contiguous k of kNI columns.
struct ColumnsB {
  const u16* p[kNI];

  __device__ __forceinline__ ColumnsB(const u16* b, int ldb, int n, int column, int k) {
#pragma unroll
    for (int j = 0; j < kNI; ++j) p[j] = b + (i64)(kExact ? column + j : min_of(column + j, n - 1)) * ldb + k;
  }
};

struct FragmentB {
  Vec4 columns[kNI];

  __device__ __forceinline__ void load(const ColumnsB& from, int offset, bool inside) {
#pragma unroll
    for (int j = 0; j < kNI; ++j) {
      columns[j] = inside ? load_global16(from.p[j] + offset) : Vec4{0, 0, 0, 0};
    }
  }
  __device__ __forceinline__ u32 pair(int j, int i) const { return word(columns[j], i); }
};
#endif

using Accumulator = float[kMI][kNI][4];

// This thread owns eight k of every kChunk, the first at `warp_first` + `lane_first`. The number of passes depends on
// the warp alone: mma needs all its lanes.
__device__ __forceinline__ void multiply(Accumulator& acc, const RowsA& rows, const ColumnsB& columns, int warp_first,
                                         int lane_first, int k_end) {
#pragma unroll 1
  for (int first = 0; first < (kExact ? k_end : k_end - warp_first); first += kPass) {
    FragmentA a[kUnroll];
    FragmentB b[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int offset = first + u * kChunk;
      const bool inside = kExact || warp_first + lane_first + offset < k_end;
      a[u].load(rows, offset, inside);
      b[u].load(columns, offset, inside);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
#pragma unroll
      for (int step = 0; step < 2; ++step) {
#pragma unroll
        for (int j = 0; j < kNI; ++j) {
          const u32 b0 = b[u].pair(j, 2 * step);
          const u32 b1 = b[u].pair(j, 2 * step + 1);
#pragma unroll
          for (int i = 0; i < kMI; ++i) {
            const Vec4& top = a[u].rows[i][0];
            const Vec4& bottom = a[u].rows[i][1];
            mma16816(acc[i][j], word(top, 2 * step), word(bottom, 2 * step), word(top, 2 * step + 1),
                     word(bottom, 2 * step + 1), b0, b1);
          }
        }
      }
    }
  }
}

// Value `i` of the 2 * kNI contiguous columns that this thread holds of a row (half 0) or the row 8 below (half 1).
__device__ __forceinline__ float held(const float (&acc)[kNI][4], int half, int i) {
  return acc[i % kNI][half * 2 + i / kNI];
}

__device__ __forceinline__ void store_direct(const Accumulator& acc, u16* c, int ldc, int m, int n, int row,
                                             int column) {
#pragma unroll
  for (int i = 0; i < kMI; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = row + i * 16 + half * 8;
      if (!kExact && r >= m) continue;
      u32 packed[kNI];
#pragma unroll
      for (int w = 0; w < kNI; ++w) packed[w] = pack2(held(acc[i], half, 2 * w), held(acc[i], half, 2 * w + 1));
      u16* p = c + (i64)r * ldc + column;
      if constexpr (kNI == 2) {
        if (kExact || column < n) *reinterpret_cast<uint2*>(p) = make_uint2(packed[0], packed[1]);
      } else {
#pragma unroll
        for (int w = 0; w < kNI; w += 4) {
          if (kExact || column + 2 * w < n) {
            store_global16<false>(p + 2 * w, Vec4{packed[w], packed[w + 1], packed[w + 2], packed[w + 3]});
          }
        }
      }
    }
  }
}

// Adds the warps' partial tiles in the order of warp_k and stores the sum.
__device__ __forceinline__ void store_reduced(const Accumulator& acc, float* sums, u16* c, int ldc, int m, int n,
                                              int tile_row, int tile_column, int row, int column, int warp_k) {
  float* mine = sums + warp_k * kTileM * kSumStride;
#pragma unroll
  for (int i = 0; i < kMI; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float* line = mine + (row + i * 16 + half * 8) * kSumStride + column;
#pragma unroll
      for (int w = 0; w < 2 * kNI; w += 4) {
        *reinterpret_cast<float4*>(line + w) = make_float4(held(acc[i], half, w), held(acc[i], half, w + 1),
                                                           held(acc[i], half, w + 2), held(acc[i], half, w + 3));
      }
    }
  }
  __syncthreads();
  for (int unit = threadIdx.x; unit < kTileM * kTileN / 4; unit += kThreads) {
    const int r = unit / (kTileN / 4);
    const int col = unit % (kTileN / 4) * 4;
    float4 sum = *reinterpret_cast<const float4*>(sums + r * kSumStride + col);
#pragma unroll
    for (int w = 1; w < kWarpsK; ++w) {
      const float4 part = *reinterpret_cast<const float4*>(sums + (w * kTileM + r) * kSumStride + col);
      sum.x += part.x, sum.y += part.y, sum.z += part.z, sum.w += part.w;
    }
    if (kExact || (tile_row + r < m && tile_column + col < n)) {
      *reinterpret_cast<uint2*>(c + (i64)(tile_row + r) * ldc + tile_column + col) =
          make_uint2(pack2(sum.x, sum.y), pack2(sum.z, sum.w));
    }
  }
}

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    HGP_SYMBOL(const u16* a, const u16* b, u16* c, int m, int n, int k, int lda, int ldb, int ldc) {
  extern __shared__ float sums[];
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int warp_m = warp % kWarpsM;
  const int warp_n = warp / kWarpsM % kWarpsN;
  const int warp_k = warp / (kWarpsM * kWarpsN);
  const int tile_row = blockIdx.x * kTileM;
  const int tile_column = blockIdx.y * kTileN;
  const int warp_first = warp_k * 32;
  const int lane_first = lane % 4 * 8;
  const RowsA rows(a, lda, m, tile_row + warp_m * kWarpM + lane / 4, warp_first + lane_first);
  const ColumnsB columns(b, ldb, n, tile_column + warp_n * kWarpN + kNI * (lane / 4), warp_first + lane_first);

  wait_for_upstream();
  allow_dependents();
  Accumulator acc = {};
  multiply(acc, rows, columns, warp_first, lane_first, k);

  const int row = warp_m * kWarpM + lane / 4;
  const int column = warp_n * kWarpN + 2 * kNI * (lane % 4);
  if constexpr (kWarpsK == 1) {
    store_direct(acc, c, ldc, m, n, tile_row + row, tile_column + column);
  } else {
    store_reduced(acc, sums, c, ldc, m, n, tile_row, tile_column, row, column, warp_k);
  }
}
