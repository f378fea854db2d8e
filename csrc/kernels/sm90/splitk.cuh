// Family sm90_splitk. C[M,N] = A * B, fp32 accumulate, layouts nn, nt, tn and tt, fp16 and bf16.
//
// Idea: for few tiles and a deep K. Each tile has kSplit * kSlices CTAs, each with its own part of K: one producer warp
// streams it by TMA into a ring, one or two consumer warpgroups of 64 rows multiply. The kSplit CTAs of a cluster add
// their parts through distributed shared memory, each ending with its share of the columns; the kSlices clusters of a
// tile share those sums through global memory, for which all of them must run at once (a cooperative launch).
// Valid: M and N up to 32768, M of 8 in tn and tt, N and K of 8 (TMA), a k-tile at least for each CTA of a tile,
// 16-byte aligned operands; N a multiple of 32 for the grouped epilogue.
// Build: NVRTC, --gpu-architecture=sm_90a, genes as HGP_* macros (generator/families/splitk.py).
#include "common/cluster_reduce.cuh"
#include "common/epilogue.cuh"
#include "common/finish.cuh"
#include "common/ring.cuh"
#include "common/slice_reduce.cuh"

constexpr int kTileM = HGP_TILE_M;
constexpr int kTileN = HGP_TILE_N;
constexpr int kTileK = HGP_TILE_K;
constexpr int kStages = HGP_STAGES;
constexpr int kSplit = HGP_SPLIT;         // CTAs of a cluster, each with a part of K
constexpr int kSlices = HGP_SLICES;       // clusters that share a tile
constexpr int kAcross = HGP_ACROSS;       // of them store columns of their own
constexpr bool kRuns = HGP_RUN > 0;       // only some neighbouring tiles come before their next slice
constexpr int kRun = kRuns ? HGP_RUN : 1;
constexpr bool kOverlaid = HGP_OVERLAID;  // the inbox of the cluster's sum lies over the ring

constexpr int kConsumers = kTileM / 64;
constexpr int kConsumerThreads = kConsumers * 128;
// A whole producer warpgroup, which hands its registers over, where 168 are not enough (see wgmma.cuh).
constexpr bool kReallocate = HGP_REALLOCATE;
constexpr int kThreads = kConsumerThreads + (kReallocate ? 128 : HGP_READS_AHEAD ? 64 : 32);
constexpr int kSlabs = kTileK / 64;
constexpr int kShareN = kTileN / kSplit;     // columns that a cluster leaves to a CTA
constexpr int kStoredN = kShareN / kAcross;  // of which it makes what it stores
using OperandA = Operand<kTileM, HGP_A_MN_MAJOR>;
using OperandB = Operand<kTileN, HGP_B_MN_MAJOR, HGP_GROUPED_B>;
using StageLayout = Stage<OperandA, OperandB, kSlabs>;
using Cursor = RingCursor<kStages>;
using Reduce = ClusterReduce<kTileN, kSplit, kConsumerThreads>;
using Slices = SliceShare<kShareN, kSlices, kAcross, HGP_LOADS>;
using Epilogue = RingEpilogue<HGP_OF_C(kStoredN), false>;
constexpr int kRingBytes = kStages * StageLayout::kBytes;
constexpr int kInboxOffset = kOverlaid ? 0 : kRingBytes;
constexpr int kStagingOffset = kRingBytes + (kSplit > 1 && !kOverlaid ? Reduce::kBytes : 0);
static_assert(!kOverlaid || Reduce::kBytes <= kRingBytes, "the ring holds the inbox");

struct Barriers {
  RingBarriers<kStages, kSlabs> ring;  // products begin, and end, half a stage of 128 earlier
  u64 share;  // this CTA's columns have come from all CTAs of the cluster
};

// The tile of a CTA and its part of K. blockIdx.x = (slice * tiles + tile) * kSplit + rank, or with runs
// ((tile / kRun) * kSlices + slice) * kRun + tile % kRun. CTAs that ask for the same lines at the same time are served
// together, two of an SM pair above all: neighbouring tiles come first, and which order then does best depends on how
// many tiles there are along each side.
struct Work {
  u32 ctas;  // that share the work of a slice
  u32 slice;
  u32 place;  // of this CTA among those of its slice
  u32 rank;
  int row, column;  // first of the tile
  int begin, end;   // k-tiles

  __device__ __forceinline__ Work(int m, int k) {
    ctas = gridDim.x / kSlices;
    if (kRuns && ctas % kRun == 0) {
      slice = blockIdx.x / kRun % kSlices;
      place = blockIdx.x / (kRun * kSlices) * kRun + blockIdx.x % kRun;
    } else {
      slice = kSlices > 1 ? quick_quotient(blockIdx.x, ctas) : 0;
      place = blockIdx.x - slice * ctas;
    }
    rank = place % kSplit;
    const int tile = place / kSplit;
    const int tiles_m = ceil_div(m, kTileM);
    const int tile_n = quick_quotient(tile, tiles_m);
    column = tile_n * kTileN;
    row = (tile - tile_n * tiles_m) * kTileM;
    const int k_tiles = ceil_div(k, kTileK);
    const int part = slice * kSplit + rank;
    begin = k_tiles * part / (kSplit * kSlices);
    end = k_tiles * (part + 1) / (kSplit * kSlices);
  }
};

// Load: one lane of the producer's first warp. Asks for all stages but the first.
__device__ __forceinline__ void produce(u8* ring, RingBarriers<kStages, kSlabs>& barriers, const TensorMap* map_a,
                                        const TensorMap* map_b, const Work& work) {
  Cursor cursor;
  cursor.advance();
#pragma unroll 1
  for (int i = work.begin + 1; i < work.end; ++i) {
    if (i >= work.begin + kStages) barrier_wait(&barriers.empty[cursor.stage], cursor.parity ^ 1);
    StageLayout::load(ring + cursor.stage * StageLayout::kBytes, barriers.full[cursor.stage], map_a, work.row, map_b,
                      work.column, i);
    cursor.advance();
  }
}

// Reduce: all threads of the cluster, once. After it every CTA of the cluster takes what is sent: its barriers are
// initialised and, where the inbox lies over the ring, its products have read the ring.
__device__ __forceinline__ void inboxes_open() {
  if (kOverlaid) cluster_arrive();
  if (kSplit > 1) cluster_wait();
}

#if HGP_SLICES > 1
#define HGP_WORKSPACE , u32* parts
#else
#define HGP_WORKSPACE
#endif

extern "C" __global__ void __launch_bounds__(kThreads, HGP_CTAS_PER_SM)
    HGP_SYMBOL(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b, u16* c HGP_WORKSPACE,
               int m, int n, int k, int ldc HGP_ADDEND) {
  extern __shared__ u8 dynamic_smem[];
  __shared__ Barriers barriers;

  // Setup, all threads: the barriers, this CTA's tile and its part of K.
  const int warp = warp_uniform(threadIdx.x / 32);
  const bool producer = warp >= kConsumers * 4;
  open_ring<false>(warp, kConsumers * 4, barriers.ring, 4 * kConsumers, &barriers.share,
                   kSplit > 1 ? Reduce::arriving_bytes() : 0, &map_a, &map_b);
  __syncwarp();
  // The wait of inboxes_open() belongs to it: the cluster comes together while it loads and multiplies.
  if (kSplit > 1 && !kOverlaid) cluster_arrive();
  u8* ring = HGP_FIRST_SLAB(dynamic_smem);
  Work work(m, k);
  have(work.row), have(work.column), have(work.begin), have(work.end);
  __syncthreads();
  if constexpr (!HGP_READS_AHEAD) wait_for_upstream();

  // Load, first stage, by a lane of the producer's first warp. Here and not with the others, whose code lies far away.
  if (warp == kConsumers * 4 && elected()) {
    StageLayout::load(ring, barriers.ring.full[0], &map_a, work.row, &map_b, work.column, work.begin);
  }
  if constexpr (!HGP_READS_AHEAD) allow_dependents();

  // Load, the rest, by the same lane. The producer's second warp keeps the door. All its warps end here.
  if (producer) {
    if (kReallocate) give_registers<40>();
    if constexpr (HGP_READS_AHEAD) {
      if (warp == kConsumers * 4 + 1) keep_door<HGP_TRIGGERS_EARLY>();
    }
    if (warp == kConsumers * 4 && elected()) produce(ring, barriers.ring, &map_a, &map_b, work);
    __syncwarp();
    inboxes_open();
    return;
  }

  // Multiply, each consumer warpgroup: 64 rows of the tile over the CTA's part of K. Leaves the sums in its registers.
  if (kReallocate) take_registers<232>();
  const int consumer = warp / 4;
  Cursor cursor;
  float acc[1][kTileN / 2];
  multiply_ring<OperandA, OperandB, kSlabs>(acc, ring, barriers.ring, cursor, work.end - work.begin, consumer,
                                            [&](int stage) { release_by_warp(&barriers.ring.empty[stage]); });
  wgmma_wait<0>();

  // Reduce over the cluster, each consumer warpgroup: leaves the sums of this CTA's columns.
#if HGP_SPLIT > 1
  float share[kShareN / 2];
  inboxes_open();
  Reduce::sum(acc[0], share, ring + kInboxOffset, &barriers.share, work.rank, threadIdx.x);
#else
  float (&share)[kShareN / 2] = acc[0];
  // Else the compiler copies accumulators before the wait, and serialises the products for it.
#pragma unroll
  for (int i = 0; i < kShareN / 2; ++i) asm volatile("" : "+f"(share[i]));
#endif

  // Reduce over the slices, each consumer warp: leaves the sums of what the CTA stores, in the warps that store.
  if constexpr (HGP_READS_AHEAD) wait_for_upstream();
#if HGP_SLICES > 1
  constexpr int kCtaWords = kConsumers * Slices::kWords;
  u32* slice_0 = parts + (i64)work.place * kCtaWords + consumer * Slices::kWords;
  float sum[kStoredN / 2];
  if (!Slices::sum(share, sum, slice_0, work.ctas * kCtaWords, work.slice)) return;
#else
  float (&sum)[kStoredN / 2] = share;
#endif

  // Store, each consumer warp: its 16 rows.
  const int column = work.rank * kShareN + work.slice % kAcross * kStoredN;
  HGP_FINISH(sum, work.row + consumer * 64, work.column + column);
  Epilogue::store(HGP_FINISHED(sum), {c, ldc, m, HGP_OF_C(n), work.row + consumer * 64, HGP_OF_C(work.column + column)},
                  smem_address(ring) + kStagingOffset + warp * Epilogue::kWarpBytes);
}
