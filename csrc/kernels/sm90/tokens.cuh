// Family sm90_tokens. C[M,N] = A * B for any number of rows of A (tokens), fp32 accumulate, layouts nn, nt, tn and tt,
// fp16 and bf16.
//
// Idea: sm90_wgmma with its operands exchanged. Rows of B^T (weights) are wgmma's rows, tokens its columns, which come
// in steps of 8: of a tile for any M little is empty, and tiles and waves can be fitted to each other. One producer
// warp streams both by TMA into a ring; one to three consumer warpgroups share a tile by weights (`cooperative`), or two
// take alternate tiles (`pingpong`). CTAs of a cluster share weights or tokens by multicast, or one tile by K, and then
// add their parts through distributed shared memory (split_k). The tile is transposed on its way out by stmatrix.
// Valid: any M (tn, tt: a multiple of 8), N and K multiples of 8 (TMA), with split_k a k-tile at least for each CTA,
// 16-byte aligned operands; tiles of tokens in steps of 32 in tn and tt.
// Build: NVRTC, --gpu-architecture=sm_90a, genes as HGP_* macros (generator/families/tokens.py).
#include "common/cluster_reduce.cuh"
#include "common/epilogue.cuh"
#include "common/finish.cuh"
#include "common/ring.cuh"

// With HGP_BATCHED the tiles are of many products: see batched.cuh.
#ifndef HGP_BATCHED
#define HGP_BATCHED 0
#endif

constexpr int kTokens = HGP_TILE_M;
constexpr int kRows = HGP_TILE_N;  // of weights
constexpr int kTileK = HGP_TILE_K;
constexpr int kSlabs = kTileK / 64;
constexpr int kStages = HGP_STAGES;
constexpr int kConsumers = HGP_CONSUMERS;
constexpr bool kPingpong = HGP_PINGPONG;
constexpr int kClusterM = HGP_CLUSTER_M;  // CTAs that share weights
constexpr int kClusterN = HGP_CLUSTER_N;  // CTAs that share tokens
constexpr int kSplitK = HGP_SPLIT_K;      // CTAs of a cluster that share a tile; then kClusterM = kClusterN = 1

constexpr int kBlocks = (kPingpong ? kRows : kRows / kConsumers) / 64;
constexpr int kWarps = kConsumers * 4;  // that multiply
constexpr int kClusterSize = kClusterM * kClusterN * kSplitK;
constexpr int kPeers = kClusterM + kClusterN - 1;  // CTAs that share an operand with this one, itself included
constexpr int kReleases = 4 * (kPingpong ? 1 : kConsumers) * kPeers;
// See wgmma.cuh: where one CTA has the SM, a whole producer warpgroup hands its registers over to two or three others.
constexpr bool kReallocate = HGP_REALLOCATE;
constexpr int kThreads = kWarps * 32 + (kReallocate ? 128 : HGP_READS_AHEAD ? 64 : 32);
constexpr int kOrderBarrier = 1;     // ids 1, 2: whose turn the tensor cores are (pingpong)
constexpr int kEpilogueBarrier = 3;  // ids 3 to 5: one per consumer
constexpr int kReadyBarrier = 6;     // the mbarriers are initialised

#if HGP_BATCHED
using Weights = BatchedOperand<kRows, HGP_B_MN_MAJOR>;
using Tokens = BatchedOperand<kTokens, HGP_A_MN_MAJOR>;
#else
using Weights = Operand<kRows, HGP_B_MN_MAJOR, HGP_GROUPED_B>;
using Tokens = Operand<kTokens, HGP_A_MN_MAJOR>;
#endif
using StageLayout = Stage<Weights, Tokens, kSlabs>;
using Range = KRange<kTileK, kSplitK>;
using Cursor = RingCursor<kStages>;
using Reduce = RowReduce<kBlocks, kTokens / 2, kSplitK, kWarps>;
constexpr int kWeightBoxes = HGP_WEIGHT_BOXES;  // of a CTA's slice: no box has more than 256 rows
// Slices of tokens are whole atoms of 8 and equal, as their boxes are: where the tile has no such parts the last ones
// overlap. Rows that come twice are the same both times.
constexpr int kTokenSlice = HGP_TOKEN_SLICE;
constexpr int kTokenBytes = HGP_A_MN_MAJOR ? Tokens::kSlabBytes : kClusterN * kTokenSlice * 128;
constexpr int kArrivingBytes = kSlabs * (Weights::kSlabBytes + kTokenBytes);  // in each stage

struct Barriers {
  RingBarriers<kStages> ring;
  u64 share;  // this CTA's rows have come from all CTAs of the cluster
};

#if HGP_BATCHED
// Where a tile is, and in which product.
struct Place {
  int m, n, of;
};

struct Tiles {
  int clusters_m, clusters_n, each, total, step, first;  // cluster tiles; of each product
  u32 rank_m, rank_n;

  __device__ __forceinline__ Tiles(int m, int n, int batches) {
    const u32 rank = kClusterM * kClusterN > 1 ? cluster_rank() : 0;
    rank_m = rank % kClusterM;
    rank_n = rank / kClusterM;
    clusters_m = ceil_div(m, kTokens * kClusterM);
    clusters_n = ceil_div(n, kRows * kClusterN);
    each = clusters_m * clusters_n;
    total = each * batches;
    step = gridDim.x / kClusterSize;
    first = blockIdx.x / kClusterSize;
  }
  // First token and row of weights of this CTA's share of cluster tile t.
  __device__ __forceinline__ Place origin(int t) const {
    const int of = quotient<true>(t, each);
    const TileIndex at = tile_at<HGP_GROUP, HGP_RASTER_N, true>(t - of * each, clusters_m, clusters_n);
    return {(at.m * kClusterM + (int)rank_m) * kTokens, (at.n * kClusterN + (int)rank_n) * kRows, of};
  }
};
#else
using Place = TileIndex;

struct Tiles {
  int clusters_m, clusters_n, total, step, first;
  u32 rank_m, rank_n;
  TileIndex only;  // where there is no other

  __device__ __forceinline__ Tiles(int m, int n) {
    const u32 rank = kClusterM * kClusterN > 1 ? cluster_rank() : 0;
    rank_m = rank % kClusterM;
    rank_n = rank / kClusterM;
    clusters_m = ceil_div(m, kTokens * kClusterM);
    clusters_n = ceil_div(n, kRows * kClusterN);
    total = clusters_m * clusters_n;
    step = gridDim.x / kClusterSize;
    first = blockIdx.x / kClusterSize;
    if (!HGP_PERSISTENT) {
      only = found(first);
      have(only.m), have(only.n);
    }
  }
  // First token and row of weights of this CTA's share of cluster tile t.
  __device__ __forceinline__ TileIndex origin(int t) const { return !HGP_PERSISTENT ? only : found(t); }

 private:
  __device__ __forceinline__ TileIndex found(int t) const {
    const TileIndex at = tile_at<HGP_GROUP, HGP_RASTER_N, !HGP_PERSISTENT>(t, clusters_m, clusters_n);
    return {(at.m * kClusterM + (int)rank_m) * kTokens, (at.n * kClusterN + (int)rank_n) * kRows};
  }
};
#endif

// Setup: all threads. Leaves them free to use the barriers, those of CTAs that share an operand as well.
__device__ __forceinline__ void open(int warp, bool producer, Barriers& barriers, const TensorMap* map_a,
                                     const TensorMap* map_b) {
  if constexpr (HGP_PERSISTENT) {
    open_ring_alone(warp == kWarps && elected(), barriers.ring, kReleases, map_b, map_a,
                    [&] { barrier_init(&barriers.share, 1); });
  } else {
    open_ring<false, 7>(warp, kWarps, barriers.ring, kReleases, &barriers.share,
                     kSplitK > 1 ? Reduce::arriving_bytes() : 0, map_b, map_a);
  }
  __syncwarp();
  if constexpr (kPeers > 1) {
    cluster_sync();
  } else if constexpr (HGP_PERSISTENT) {
    ring_is_open<kThreads>(producer, kReadyBarrier);
  } else {
    // The wait comes before the sum: the cluster comes together while it loads and multiplies.
    if (kSplitK > 1) cluster_arrive();
    __syncthreads();
  }
}

// Load: one thread. Asks for one stage of the tile at `at`, this CTA's slices of what the cluster shares.
__device__ __forceinline__ void load_stage(u8* stage, u64* full, const TensorMap* map_a, const TensorMap* map_b,
                                           const Tiles& tiles, Place at, int k) {
  u16 mask_a = 0, mask_b = 0;
  if (kClusterN > 1) {
    for (int j = 0; j < kClusterN; ++j) mask_a |= 1 << (tiles.rank_m + kClusterM * j);
  }
  if (kClusterM > 1) mask_b = ((1 << kClusterM) - 1) << (kClusterM * tiles.rank_n);
  barrier_expect(full, kArrivingBytes);
#pragma unroll
  for (int slab = 0; slab < kSlabs; ++slab) {
#pragma unroll
    for (int box = 0; box < kWeightBoxes; ++box) {
#if HGP_BATCHED
      Weights::load_of<kClusterM * kWeightBoxes>(StageLayout::slab_a(stage, slab), map_b, full, at.n, k + slab * 64,
                                                 at.of, tiles.rank_m * kWeightBoxes + box, mask_b);
#else
      Weights::load<kClusterM * kWeightBoxes>(StageLayout::slab_a(stage, slab), map_b, full, at.n, k + slab * 64,
                                              tiles.rank_m * kWeightBoxes + box, mask_b);
#endif
    }
    u8* const tokens = StageLayout::slab_b(stage, slab);
#if HGP_BATCHED
    if constexpr (HGP_A_MN_MAJOR) {
      Tokens::load_of<kClusterN>(tokens, map_a, full, at.m, k + slab * 64, at.of, tiles.rank_n, mask_a);
    } else {
      const int first = min_of(tiles.rank_n * kTokenSlice, kTokens - kTokenSlice);
      load_box_of(tokens + first * 128, map_a, full, k + slab * 64, at.m + first, at.of, mask_a);
    }
#else
    if constexpr (HGP_A_MN_MAJOR) {
      Tokens::load<kClusterN>(tokens, map_a, full, at.m, k + slab * 64, tiles.rank_n, mask_a);
    } else {
      const int first = min_of(tiles.rank_n * kTokenSlice, kTokens - kTokenSlice);
      load_box(tokens + first * 128, map_a, full, k + slab * 64, at.m + first, mask_a);
    }
#endif
  }
}

// Load: one lane of the producer's first warp. Asks for all stages of all tiles; in a kernel of one tile for all but
// the first.
__device__ __forceinline__ void produce(u8* ring, Barriers& barriers, const TensorMap* map_a, const TensorMap* map_b,
                                        const Tiles& tiles, Range range) {
  Cursor cursor;
  if (!HGP_PERSISTENT) cursor.advance();
  for (int t = tiles.first; t < tiles.total; t += tiles.step) {
    const Place at = tiles.origin(t);
#pragma unroll 1
    for (int i = HGP_PERSISTENT ? range.begin : range.begin + 1; i < range.end; ++i) {
      if (HGP_PERSISTENT || i >= range.begin + kStages)
        barrier_wait(&barriers.ring.empty[cursor.stage], cursor.parity ^ 1);
      load_stage(ring + cursor.stage * StageLayout::kBytes, barriers.ring.full[cursor.stage], map_a, map_b, tiles, at,
                 i * kTileK);
      cursor.advance();
    }
  }
}

// Multiply: each consumer warp. Tells every CTA that writes into this CTA's ring: this warp has finished with `stage`.
__device__ __forceinline__ void release_stage(Barriers& barriers, int stage, const Tiles& tiles) {
  const u32 lane = threadIdx.x % 32;
  if (kPeers == 1) {
    release_by_warp(&barriers.ring.empty[stage]);
  } else if (lane < kPeers) {
    const u32 m = lane < kClusterM ? lane : tiles.rank_m;
    const u32 other_n = lane - kClusterM;  // rows of the cluster but this CTA's own
    const u32 n = lane < kClusterM ? tiles.rank_n : other_n + (other_n >= tiles.rank_n);
    barrier_arrive_remote(&barriers.ring.empty[stage], m + kClusterM * n);
  }
}

// Here, because it speaks of the tile and of its constants.
#include "sm90/tokens_store.cuh"

extern "C" __global__ void __launch_bounds__(kThreads, HGP_CTAS_PER_SM)
    HGP_SYMBOL(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b, HGP_OUTPUT, int m,
               int n, int k HGP_LDC HGP_ADDEND HGP_BATCHES) {
  extern __shared__ u8 dynamic_smem[];
  __shared__ Barriers barriers;

  // Setup, all threads: the barriers, this CTA's tiles and its part of K.
  u8* ring = HGP_FIRST_SLAB(dynamic_smem);
  u8* inbox = ring + kStages * StageLayout::kBytes;
  u8* staging = inbox + (kSplitK > 1 ? Reduce::kBytes : 0);
  const int warp = warp_uniform(threadIdx.x / 32);
  const bool producer = warp >= kWarps;
  const Tiles tiles(m, n HGP_GIVE_BATCHES);
  const u32 rank = kSplitK > 1 ? cluster_rank() : 0;
  const Range range(k, rank);
  open(warp, producer, barriers, &map_a, &map_b);
  if constexpr (!HGP_READS_AHEAD) wait_for_upstream();

  // Load, first stage of a kernel of one tile, by a lane of the producer's first warp. Here and not with the others,
  // whose code lies far away.
  if (!HGP_PERSISTENT && warp == kWarps && elected()) {
    load_stage(ring, barriers.ring.full[0], &map_a, &map_b, tiles, tiles.origin(tiles.first), range.begin * kTileK);
  }
  if constexpr (!HGP_READS_AHEAD) allow_dependents();

  if (producer) {
    // Load, the rest, by the same lane. The second warp keeps the door.
    if (kReallocate) give_registers<HGP_PRODUCER_REGISTERS>();
    if constexpr (HGP_READS_AHEAD) {
      if (warp == kWarps + 1) keep_door<HGP_TRIGGERS_EARLY>();
    }
    if (warp == kWarps && elected()) produce(ring, barriers, &map_a, &map_b, tiles, range);
  } else {
    if (kReallocate) take_registers<HGP_CONSUMER_REGISTERS>();
    const int consumer = warp / 4;
    const int first_block = kPingpong ? 0 : consumer * kBlocks;
    const int stages = range.count();
    const auto release = [&](int stage) { release_stage(barriers, stage, tiles); };
    staging += (kWhole ? consumer : warp) * kBuffers * kBufferBytes;
    Cursor cursor;
    u32 turn = 0;
    int t = tiles.first;
    if (kPingpong && consumer == 1) {
      named_arrive(kOrderBarrier, 256);
      t += tiles.step;
      cursor.skip(stages);
    }
    for (; t < tiles.total; t += kPingpong ? 2 * tiles.step : tiles.step) {
      // Multiply, each consumer warpgroup: its rows of weights of every tile or, in turn, all of them, by all tokens of
      // the tile. Leaves the sums in its registers.
      const Place at = tiles.origin(t);
      float acc[kBlocks][kTokens / 2];
      // In turn, tile by tile: a parity wait one whole ring round ahead would pass too early.
      if (kPingpong) named_sync(kOrderBarrier + consumer, 256);
      const int last =
          multiply_ring<Weights, Tokens, kSlabs>(acc, ring, barriers.ring, cursor, stages, first_block, release);
      if (kPingpong) {
        // Issued, not finished: the other consumer's products queue up behind these without a gap.
        if (t + tiles.step < tiles.total) named_arrive(kOrderBarrier + 1 - consumer, 256);
        cursor.skip(stages);
      }
      wgmma_wait<0>();
      release(last);
      if constexpr (HGP_READS_AHEAD) wait_for_upstream();

      // Reduce, each consumer warp: leaves the sums over the cluster in the warps whose rows this CTA stores.
      if (kSplitK > 1) {
        __syncwarp();
        cluster_wait();
        if (!Reduce::sum(acc, inbox, &barriers.share, rank, warp)) return;
      }

      // Store, each consumer warpgroup or warp: its columns of C, while the other multiplies (pingpong).
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
        const int column = at.n + (first_block + block) * 64;
        store_block(acc[block], staging, turn, kEpilogueBarrier + consumer, at.m, column + (kWhole ? 0 : warp % 4 * 16),
                    m, n HGP_TO_C_OF_TILE HGP_ADDEND_OF_TILE);
      }
    }
    finish_stores();
  }
  // Finish, all threads but those that hold nothing to store. A grid never ends before the one ahead.
  if constexpr (HGP_READS_AHEAD) wait_together();
  // No CTA may leave while a peer can still write into its ring or arrive on its barriers.
  if (kPeers > 1) {
    __syncwarp();
    cluster_sync();
  }
}
