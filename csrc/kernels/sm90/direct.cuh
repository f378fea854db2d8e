// Family sm90_direct. C[M,N] = A[M,K] * B for problems of about 2 us, where a ring and its set-up cost more than they
// hide. fp32 accumulate, layouts nn and nt, fp16 and bf16.
//
// Idea: no shared memory for operands (common/direct_operand.cuh). Inside a warp tile the columns are permuted, block j
// column g being column kNI * g + j, so that a thread ends with 2 * kNI contiguous outputs. A window of kUnroll chunks
// of K stays in flight. Warps split K and add in shared memory; with clusters CTAs split K as well and send what their
// warps added to the owners of the elements: one launch, fixed order.
// With kFixedK the length of K is a constant: no loop control, and offsets inside the loads.
// Valid: any M, N and K multiples of 8, 16-byte aligned operands; exact kernels: whole tiles, whole windows of K for
// each CTA; with kFixedK that K for each CTA and no other.
// Build: NVRTC, --gpu-architecture=sm_90a, genes as HGP_* macros (generator/families/direct.py).
#include "common/direct_operand.cuh"
#include "common/finish.cuh"
#include "common/mma.cuh"
#include "common/ptx.cuh"
#include "common/tile_sum.cuh"

constexpr int kMI = HGP_MI;  // m16 blocks of a warp
constexpr int kNI = HGP_NI;  // n8 blocks of a warp
constexpr int kWarpsM = HGP_WARPS_M;
constexpr int kWarpsN = HGP_WARPS_N;
constexpr int kWarpsK = HGP_WARPS_K;
constexpr int kUnroll = HGP_UNROLL;    // chunks of K in flight
constexpr int kFixedK = HGP_FIXED_K;   // K of a CTA, 0: known at run time
constexpr int kRanks = HGP_CLUSTER_K;  // CTAs that share a tile
// Exact kernels take only whole tiles and whole windows of K: no clamps, no predicates (64^3: a fifth less time).
constexpr bool kExact = HGP_EXACT;
constexpr bool kExactK = kExact || kFixedK > 0;

constexpr int kWarpM = 16 * kMI;
constexpr int kWarpN = 8 * kNI;
constexpr int kTileM = kWarpsM * kWarpM;
constexpr int kTileN = kWarpsN * kWarpN;
constexpr int kElements = kTileM * kTileN;
constexpr int kThreads = 32 * kWarpsM * kWarpsN * kWarpsK;
constexpr int kStep = 32 * kWarpsK;       // K from a chunk of a warp to its next
constexpr int kWindow = kStep * kUnroll;  // K that the CTA has in flight

constexpr int kRounds = kFixedK / kWindow;  // windows, where known
// Short loops are straight code; longer ones would wait for their instructions.
constexpr int kLoopUnroll = kRounds * kUnroll * kMI * kNI <= 16 ? (kRounds > 1 ? kRounds : 1) : 1;
// Sums of a warp run in so many chains, since an mma waits about 33 clocks for the one before it in its chain.
constexpr int kChains = kMI * kNI <= 4 ? 2 : 1;

// Floats in a row of a warp's part of the sum, such that neither writing nor reading meets bank conflicts.
constexpr int kPad = kNI >= 4 ? 4 : kWarpsN == 1 ? 0 : 8 * kNI;
constexpr int kSumStride = kTileN + kPad;
constexpr int kSumFloats = kWarpsK == 1 ? 0 : kWarpsK * kTileM * kSumStride;

static_assert(kRanks == 1 || kWarpsK > 1, "what the warps have added is sent");
using TileMeeting = Meeting<kElements, kRanks>;
using OperandA = KMajor<2 * kMI, 8, kExact, (kWarpsN > 1)>;
#if HGP_B_MN_MAJOR
using OperandB = NMajor<kNI, kExact, (kWarpsM > 1)>;
#else
using OperandB = KMajor<kNI, 1, kExact, (kWarpsM > 1)>;
#endif
using FragmentA = OperandA::Fragment;
using FragmentB = OperandB::Fragment;
using Accumulator = float[kMI][kNI][4];

// Multiply: each warp. Adds the products of one chunk of K.
// `zero` is 0, but the compiler must not know: what is computed it puts where the mma wants it, once; what is only
// loaded it moves there anew for each mma, up to four registers a product.
__device__ __forceinline__ void multiply(Accumulator (&acc)[kChains], const FragmentA& a, const FragmentB& b,
                                         u32 zero) {
#pragma unroll
  for (int step = 0; step < 2; ++step) {
    u32 x[kMI][4];
#pragma unroll
    for (int i = 0; i < kMI; ++i) {
#pragma unroll
      for (int w = 0; w < 4; ++w) x[i][w] = a.pair(2 * i + w % 2, 2 * step + w / 2) ^ zero;
    }
#pragma unroll
    for (int j = 0; j < kNI; ++j) {
      const u32 b0 = b.pair(j, 2 * step);
      const u32 b1 = b.pair(j, 2 * step + 1);
#pragma unroll
      for (int i = 0; i < kMI; ++i) {
        mma16816(acc[step % kChains][i][j], x[i][0], x[i][1], x[i][2], x[i][3], b0, b1);
      }
    }
  }
}

// Multiply: each thread. Leaves the sums of all chains in the first.
__device__ __forceinline__ void join_chains(Accumulator (&acc)[kChains]) {
#pragma unroll
  for (int chain = 1; chain < kChains; ++chain) {
#pragma unroll
    for (int i = 0; i < kMI; ++i) {
#pragma unroll
      for (int j = 0; j < kNI; ++j) {
#pragma unroll
        for (int w = 0; w < 4; ++w) acc[0][i][j][w] += acc[chain][i][j][w];
      }
    }
  }
}

// Outputs at (row, column) of C and to the right of it.
struct Output {
  u16* c;
  u32 stride;  // bytes
  int m, n;
#ifdef HGP_ACTIVATION
  const u16* addend;
#endif

  template <int kWidth>
  __device__ __forceinline__ void store(const Floats<kWidth>& sums, int row, int column) const {
    if (!kExact && (row >= m || column >= n)) return;
    u8* p = reinterpret_cast<u8*>(c + column) + static_cast<u64>(static_cast<u32>(row)) * stride;
    u32 packed[kWidth / 2];
#ifdef HGP_ACTIVATION
    Floats<kWidth> x = sums;
    finish_row(x.v, addend, row, column, n);
#else
    const Floats<kWidth>& x = sums;
#endif
#pragma unroll
    for (int i = 0; i < kWidth / 2; ++i) packed[i] = pack2(x.v[2 * i], x.v[2 * i + 1]);
    if constexpr (kWidth == 2) {
      *reinterpret_cast<u32*>(p) = packed[0];
    } else if constexpr (kWidth == 4) {
      *reinterpret_cast<uint2*>(p) = make_uint2(packed[0], packed[1]);
    } else {
      store_global16<false>(p, Vec4{packed[0], packed[1], packed[2], packed[3]});
    }
  }
};

// Calls take(value, row, column), kWidth contiguous columns at a time, for all that this thread holds.
template <int kWidth, typename Take>
__device__ __forceinline__ void for_each_held(const Accumulator& acc, int row, int column, const Take& take) {
#pragma unroll
  for (int i = 0; i < kMI; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int first = 0; first < 2 * kNI; first += kWidth) {
        Floats<kWidth> x;
#pragma unroll
        for (int w = 0; w < kWidth; ++w) x.v[w] = acc[i][(first + w) % kNI][half * 2 + (first + w) / kNI];
        take(x, row + i * 16 + half * 8, column + first);
      }
    }
  }
}

// Calls take(first) for the units of kWidth elements that are this thread's, of `kCount` elements.
template <int kCount, int kWidth, typename Take>
__device__ __forceinline__ void for_each_unit(const Take& take) {
  constexpr int kUnits = kCount / kWidth;
#pragma unroll
  for (int from = 0; from < kUnits; from += kThreads) {
    const u32 unit = from + threadIdx.x;
    if (kUnits % kThreads == 0 || unit < kUnits) take(unit * kWidth);
  }
}

// Reduce and store: all threads. Adds over warps, then ranks. `row`, `column`: this thread's first output within the
// tile.
__device__ __forceinline__ void finish(const Accumulator& acc, float* sums, const TileMeeting& meeting, u32 rank,
                                       const Output& out, int tile_row, int tile_column, int row, int column,
                                       int warp_k) {
  if constexpr (kWarpsK == 1) {
    // Store, each thread: what it holds. Nothing is to be reduced.
    constexpr int kWidth = 2 * kNI < 8 ? 2 * kNI : 8;
    for_each_held<kWidth>(acc, row, column,
                          [&](const auto& x, int r, int c) { out.store(x, tile_row + r, tile_column + c); });
    return;
  }
  // Reduce, all threads: each warp leaves its part in shared memory.
  float* mine = sums + warp_k * kTileM * kSumStride;
  for_each_held<(2 * kNI < 4 ? 2 * kNI : 4)>(
      acc, row, column, [&](const auto& x, int r, int c) { write_floats(mine + r * kSumStride + c, x); });
  __syncthreads();
  // Reduce over the warps, all threads, and store; in a cluster send to the CTA that owns the elements.
  constexpr int kWidth = floats_at_once(kElements, kThreads);
  for_each_unit<kElements, kWidth>([&](u32 first) {
    const int r = first / kTileN, c = first % kTileN;
    const auto x = sum_parts<kWarpsK, kWidth>(sums + r * kSumStride + c, kTileM * kSumStride);
    if constexpr (kRanks > 1) {
      meeting.send(x, first, rank);
    } else {
      out.store(x, tile_row + r, tile_column + c);
    }
  });
  if constexpr (kRanks > 1) {
    // Reduce over the cluster and store, all threads: the elements that this CTA owns.
    meeting.wait();
    constexpr int kShareWidth = floats_at_once(TileMeeting::kShare, kThreads);
    for_each_unit<TileMeeting::kShare, kShareWidth>([&](u32 first) {
      const u32 at = rank * TileMeeting::kShare + first;
      out.store(meeting.sum<kShareWidth>(first), tile_row + at / kTileN, tile_column + at % kTileN);
    });
  }
}

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    HGP_SYMBOL(const u16* a, const u16* b, u16* c, int m, int n, int k, int lda, int ldb, int ldc HGP_ADDEND) {
  extern __shared__ __align__(16) float sums[];

  // Setup, all threads: which tile, and which part of K.
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int warp_m = warp % kWarpsM;
  const int warp_n = warp / kWarpsM % kWarpsN;
  const int warp_k = warp / (kWarpsM * kWarpsN);
  const u32 rank = kRanks > 1 ? blockIdx.x % kRanks : 0;
  const int tile_row = blockIdx.x / kRanks * kTileM;
  const int tile_column = blockIdx.y * kTileN;

  // This CTA's slice of K starts at `slice_first`; this thread's eight of a chunk at `first`.
  int slice = kFixedK;
  if constexpr (kFixedK == 0) slice = kExact ? static_cast<u32>(k) / kRanks : ceil_div(k, 32 * kRanks) * 32;
  const int slice_first = rank * slice;
  const int warp_first = slice_first + warp_k * 32;
  const int first = warp_first + lane % 4 * 8;
  const int end = kExactK ? slice_first + slice : min_of(slice_first + slice, k);
  OperandA rows(a, lda, m, tile_row + warp_m * kWarpM + lane / 4, first);
  OperandB columns(b, ldb, n, tile_column + warp_n * kWarpN + kNI * (lane / 4), first);
  const u32 zero = n & 7;
  // Windows of this warp, not of a lane: mma needs all lanes.
  const int rounds = kFixedK > 0 ? kRounds
                     : kExact    ? static_cast<u32>(slice) / kWindow
                                 : ceil_div(end - warp_first, kWindow);

  // Load, each warp: the first window of its own K, to its registers.
  wait_for_upstream();
  allow_dependents();
  FragmentA x[kUnroll];
  FragmentB y[kUnroll];
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const bool inside = kExactK || first + u * kStep < end;
    x[u].load(rows, u * kStep, inside);
    y[u].load(columns, u * kStep, inside);
  }
  const TileMeeting meeting{sums + kSumFloats, reinterpret_cast<u64*>(sums + kSumFloats + kElements)};
  if constexpr (kRanks > 1) meeting.announce();

  // Multiply and load, each warp: a window's products, each chunk asked for anew once it is used.
  Accumulator acc[kChains] = {};
#pragma unroll kLoopUnroll
  for (int round = 1; round < rounds; ++round) {
    rows.advance(kWindow);
    columns.advance(kWindow);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      multiply(acc, x[u], y[u], zero);
      const bool inside = kExactK || first + round * kWindow + u * kStep < end;
      x[u].load(rows, u * kStep, inside);
      y[u].load(columns, u * kStep, inside);
    }
  }
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) multiply(acc, x[u], y[u], zero);
  if constexpr (kRanks > 1) meeting.meet();  // here it hides behind the last products
  join_chains(acc);

  // Reduce and store, all threads.
  finish(acc[0], sums, meeting, rank, Output{c, 2u * ldc, m, n HGP_GIVE_ADDEND}, tile_row, tile_column,
         warp_m * kWarpM + lane / 4, warp_n * kWarpN + 2 * kNI * (lane % 4), warp_k);
}
