// Family sm90_elements. C[M,N] = A * B for small problems of any sizes, strides and addresses: N or K no multiple of 8.
// fp32 accumulate, all layouts, fp16 and bf16.
//
// Idea: no ring, no roles and no shared memory for operands. Each thread loads the elements of its fragments from
// global memory, 2 bytes each, and packs them for mma. Of 16 of K, thread q of a quad has k = q, q + 4, q + 8 and
// q + 12, for A and B alike: four threads read neighbours. kUnroll steps of 16 stay in flight. Warps split K, and CTAs
// of a cluster do: one launch, fixed order. Sums meet in shared memory, from which a warp stores neighbouring columns,
// in pairs that are aligned to 4 bytes wherever a row begins: a sector of C is written once.
// Valid: any M, N and K, operands at multiples of 2 bytes.
// Build: NVRTC, --gpu-architecture=sm_90a, genes as HGP_* macros (generator/families/elements.py).
#include "common/finish.cuh"
#include "common/mma.cuh"
#include "common/ptx.cuh"
#include "common/tile_sum.cuh"

constexpr int kMI = HGP_MI;  // m16 blocks of a warp
constexpr int kNI = HGP_NI;  // n8 blocks of a warp
constexpr int kWarpsM = HGP_WARPS_M;
constexpr int kWarpsN = HGP_WARPS_N;
constexpr int kWarpsK = HGP_WARPS_K;
constexpr int kUnroll = HGP_UNROLL;    // steps of 16 of K in flight
constexpr int kRanks = HGP_CLUSTER_K;  // CTAs that share a tile

constexpr int kStepK = 16;
constexpr int kTileM = kWarpsM * 16 * kMI;
constexpr int kTileN = kWarpsN * 8 * kNI;
constexpr int kElements = kTileM * kTileN;
constexpr int kThreads = 32 * kWarpsM * kWarpsN * kWarpsK;
constexpr int kStride = kStepK * kWarpsK;    // K from a step of a warp to its next
constexpr int kWindow = kStride * kUnroll;  // K that the CTA has in flight

// Floats in a row of a part of the sums: what a warp writes at once falls into different banks.
constexpr int kSumRow = kTileN + (40 - kTileN % 32) % 32;
constexpr int kPart = kTileM * kSumRow;
constexpr int kSumFloats = kWarpsK * kPart + 4;  // one is read behind the last row

using TileMeeting = Meeting<kElements, kRanks>;
using Accumulator = float[kMI][kNI][4];

// The element at `p`, or zero unless `at` is below `end`. A plain load: see load_global16.
__device__ __forceinline__ u32 load_element(const u8* p, int at, int end) {
  u32 value = 0;
  asm volatile("{ .reg .pred p;\nsetp.lt.s32 p, %2, %3;\n@p ld.global.u16 %0, [%1]; }"
               : "+r"(value)
               : "l"(p), "r"(at), "r"(end)
               : "memory");
  return value;
}

__device__ __forceinline__ u8* further(const void* p, u32 stride, u32 count) {
  return const_cast<u8*>(static_cast<const u8*>(p)) + static_cast<u64>(stride) * count;
}

// Rows of an operand, kCount of them 8 apart: rows of A, columns of B. With kAlongK neighbours in memory are of K.
template <int kCount, bool kAlongK>
struct Rows {
  const u8* p[kCount];
  u32 stride;  // bytes from one K to the next

  // Rows beyond the last repeat it: they only reach outputs that are never stored.
  __device__ __forceinline__ Rows(const u16* matrix, int ld, int rows, int first)
      : stride(kAlongK ? kElementBytes : 2u * ld) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int row = min_of(first + 8 * i, rows - 1);
      p[i] = further(matrix, kAlongK ? 2u * ld : kElementBytes, row);
    }
  }

  struct Fragment {
    u32 words[kCount][4];

    // This thread's four of K from `k` on, 0 from `end` on.
    __device__ __forceinline__ void load(const Rows& from, int k, int end) {
      const u64 step = kAlongK ? 4 * kElementBytes : 4ull * from.stride;
      const u64 here = static_cast<u64>(from.stride) * static_cast<u32>(k);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
#pragma unroll
        for (int i = 0; i < kCount; ++i) words[i][j] = load_element(from.p[i] + here + j * step, k + 4 * j, end);
      }
    }
    __device__ __forceinline__ u32 pair(int row, int i) const {
      return __byte_perm(words[row][2 * i], words[row][2 * i + 1], 0x5410);
    }
  };
};

using RowsA = Rows<2 * kMI, !HGP_A_MN_MAJOR>;
using RowsB = Rows<kNI, !HGP_B_MN_MAJOR>;

// Multiply: each warp. Adds the products of 16 of K.
__device__ __forceinline__ void multiply(Accumulator& acc, const RowsA::Fragment& a, const RowsB::Fragment& b) {
  u32 x[kMI][4];
#pragma unroll
  for (int i = 0; i < kMI; ++i) {
#pragma unroll
    for (int w = 0; w < 4; ++w) x[i][w] = a.pair(2 * i + w % 2, w / 2);
  }
#pragma unroll
  for (int j = 0; j < kNI; ++j) {
    const u32 b0 = b.pair(j, 0), b1 = b.pair(j, 1);
#pragma unroll
    for (int i = 0; i < kMI; ++i) mma16816(acc[i][j], x[i][0], x[i][1], x[i][2], x[i][3], b0, b1);
  }
}

// Sum of the warps' parts of one element, pairs of neighbours first.
__device__ __forceinline__ float sum_element(const float* p) {
  float parts[kWarpsK];
#pragma unroll
  for (int i = 0; i < kWarpsK; ++i) parts[i] = p[i * kPart];
#pragma unroll
  for (int step = 1; step < kWarpsK; step *= 2) {
#pragma unroll
    for (int i = 0; i < kWarpsK; i += 2 * step) parts[i] += parts[i + step];
  }
  return parts[0];
}

// Where a CTA stores: C from its tile's first element on, and how much of C there is from there.
struct Output {
  u16* c;
  u32 stride;  // bytes of a row
  int rows, columns;
#ifdef HGP_ACTIVATION
  const u16* addend;
  u32 addend_stride;
#endif

  __device__ __forceinline__ float finished(float sum, int row, int column) const {
#ifdef HGP_ACTIVATION
    const u8* p = further(addend + column, HGP_RESIDUAL ? addend_stride : 0, row);
    return finish_sum(sum, widen((u16)load_element(p, row < rows ? column : columns, columns)));
#else
    return sum;
#endif
  }

  __device__ __forceinline__ void store(float sum, int row, int column) const {
    u16* to = reinterpret_cast<u16*>(further(c + column, stride, row));
    store_if(row < rows && column < columns, to, (u16)pack2(finished(sum, row, column), 0.0f));
  }

  // Store, each thread: pairs of neighbouring columns, the first of them at a multiple of 4 bytes. Where a row begins
  // elsewhere, its first element goes alone, and so does the last.
  __device__ __forceinline__ void store_tile(const float* sums) const {
    constexpr int kPairs = kElements / 2, kOfRow = kTileN / 2;
#pragma unroll
    for (int from = 0; from < kPairs; from += kThreads) {
      const int pair = from + threadIdx.x;
      if (kPairs % kThreads != 0 && pair >= kPairs) break;
      const int row = pair / kOfRow, place = pair % kOfRow * 2;
      u16* const line = reinterpret_cast<u16*>(further(c, stride, row));
      const int head = (u32)(u64)line >> 1 & 1;
      const int column = place + head;
      const float* p = sums + row * kSumRow + column;
      const int left = row >= rows ? 0 : min_of(columns, kTileN) - column;
      const float low = finished(sum_element(p), row, column);
      const float high = finished(sum_element(p + 1), row, column + 1);
      const u32 both = pack2(low, high);
      store_if(left >= 2, line + column, both);
      store_if(left == 1, line + column, (u16)both);
      if (head && place == 0) store(sum_element(p - 1), row, 0);
    }
  }
};

extern "C" __global__ void __launch_bounds__(kThreads)
    HGP_SYMBOL(const u16* a, const u16* b, u16* c, int m, int n, int k, int lda, int ldb, int ldc HGP_ADDEND) {
  extern __shared__ __align__(16) float sums[];

  // Setup, all threads: which tile, and which part of K.
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int warp_m = warp % kWarpsM * 16 * kMI;
  const int warp_n = warp / kWarpsM % kWarpsN * 8 * kNI;
  const int warp_k = warp / (kWarpsM * kWarpsN);
  const u32 rank = kRanks > 1 ? blockIdx.x % kRanks : 0;
  const int tile_row = blockIdx.x / kRanks * kTileM;
  const int tile_column = blockIdx.y * kTileN;
  const int slice = kRanks > 1 ? ceil_div(k, kStepK * kRanks) * kStepK : k;
  const int start = rank * slice + warp_k * kStepK;
  const int end = kRanks > 1 ? min_of((int)(rank + 1) * slice, k) : k;
  const int first = start + lane % 4;
  const int rounds = start < end ? ceil_div(end - start, kWindow) : 0;
  const RowsA rows(a, lda, m, tile_row + warp_m + lane / 4);
  const RowsB columns(b, ldb, n, tile_column + warp_n + lane / 4);

  // Load, each warp: the first window of its own K, to its registers.
  wait_for_upstream();
  allow_dependents();
  RowsA::Fragment x[kUnroll];
  RowsB::Fragment y[kUnroll];
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    x[u].load(rows, first + u * kStride, end);
    y[u].load(columns, first + u * kStride, end);
  }
  const TileMeeting meeting{sums + kSumFloats, reinterpret_cast<u64*>(sums + kSumFloats + kElements)};
  if constexpr (kRanks > 1) meeting.announce();

  // Multiply and load, each warp: a window's products, each step asked for anew once it is used.
  Accumulator acc = {};
#pragma unroll 1
  for (int round = 1; round < rounds; ++round) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      multiply(acc, x[u], y[u]);
      x[u].load(rows, first + round * kWindow + u * kStride, end);
      y[u].load(columns, first + round * kWindow + u * kStride, end);
    }
  }
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) multiply(acc, x[u], y[u]);
  if constexpr (kRanks > 1) meeting.meet();  // here it hides behind the last products

  // Reduce, all threads: each warp leaves its part in shared memory.
  float* mine = sums + warp_k * kPart + (warp_m + lane / 4) * kSumRow + warp_n + lane % 4 * 2;
#pragma unroll
  for (int i = 0; i < kMI; ++i) {
#pragma unroll
    for (int j = 0; j < kNI; ++j) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        write_floats<2>(mine + (i * 16 + half * 8) * kSumRow + j * 8, {acc[i][j][half * 2], acc[i][j][half * 2 + 1]});
      }
    }
  }
  __syncthreads();
#ifdef HGP_ACTIVATION
  const u16* more = addend + (HGP_RESIDUAL ? (i64)tile_row * n : 0) + tile_column;
  const Output out{c + (i64)tile_row * ldc + tile_column, 2u * ldc, m - tile_row, n - tile_column, more, 2u * n};
#else
  const Output out{c + (i64)tile_row * ldc + tile_column, 2u * ldc, m - tile_row, n - tile_column};
#endif
  if constexpr (kRanks == 1) {
    out.store_tile(sums);
  } else {
    // Reduce over the warps, all threads: elements go to the CTA that owns them, which adds up and stores them.
    for (int at = threadIdx.x * 2; at < kElements; at += kThreads * 2) {
      const float* p = sums + at / kTileN * kSumRow + at % kTileN;
      meeting.send(Floats<2>{sum_element(p), sum_element(p + 1)}, at, rank);
    }
    meeting.wait();
    for (int at = threadIdx.x * 2; at < TileMeeting::kShare; at += kThreads * 2) {
      const Floats<2> x = meeting.sum<2>(at);
      const int place = rank * TileMeeting::kShare + at;
#pragma unroll
      for (int i = 0; i < 2; ++i) out.store(x.v[i], place / kTileN, place % kTileN + i);
    }
  }
}
