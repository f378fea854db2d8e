// Family sm90_wgmma. C[M,N] = A * B, fp32 accumulate, layouts nn, nt, tn and tt, fp16 and bf16.
//
// Idea: one producer warp streams K slices of A and B by TMA into a ring of shared-memory stages;
// one or two consumer warpgroups multiply them by wgmma and write the tile. `cooperative` consumers
// share a tile by rows, `pingpong` consumers take alternate tiles, so that one stores while the
// other multiplies. CTAs of a cluster share operands by multicast, or share one tile by K and add
// their parts through distributed shared memory (split_k). Persistent grids loop over tiles; a grid
// of one CTA a tile is the same loop run once.
// Valid: any M (tn, tt: a multiple of 8), N and K multiples of 8 (TMA), with split_k a k-tile at
// least for each CTA, 16-byte aligned operands; N a multiple of 32 for the grouped epilogue.
// Build: NVRTC, --gpu-architecture=sm_90a, genes as HGP_* macros (generator/families/wgmma.py).
#include "common/cluster_reduce.cuh"
#include "common/epilogue.cuh"
#include "common/finish.cuh"
#include "common/ring.cuh"

constexpr int kTileM = HGP_TILE_M;
constexpr int kTileN = HGP_TILE_N;
constexpr int kTileK = HGP_TILE_K;
constexpr int kStages = HGP_STAGES;
constexpr int kConsumers = HGP_CONSUMERS;
constexpr bool kPingpong = HGP_PINGPONG;
constexpr int kClusterM = HGP_CLUSTER_M;
constexpr int kClusterN = HGP_CLUSTER_N;
constexpr int kSplitK = HGP_SPLIT_K;  // CTAs of a cluster that share a tile; then kClusterM = kClusterN = 1

constexpr int kWarpgroupM = kPingpong ? kTileM : kTileM / kConsumers;
constexpr int kBlocks = kWarpgroupM / 64;
using OperandA = Operand<kTileM, HGP_A_MN_MAJOR>;
using OperandB = Operand<kTileN, HGP_B_MN_MAJOR, HGP_GROUPED_B>;
constexpr int kSlabs = kTileK / 64;
using StageLayout = Stage<OperandA, OperandB, kSlabs>;
constexpr int kStageBytes = StageLayout::kBytes;
constexpr int kClusterSize = kClusterM * kClusterN * kSplitK;
constexpr int kPeers = kClusterM + kClusterN - 1;  // CTAs that share an operand with this one, itself included
constexpr int kReaders = kPingpong ? 1 : kConsumers;
constexpr int kConsumerThreads = kConsumers * 128;
constexpr int kShareN = kTileN / kSplitK;  // columns of which a CTA makes what it stores
// Registers live in four partitions of 512 a lane. Two consumers and a lone producer warp put three
// warps into one of them, so each gets 168; a whole producer warpgroup can hand its share over
// instead.
constexpr bool kReallocate = HGP_REALLOCATE;
constexpr int kThreads = kConsumerThreads + (kReallocate ? 128 : HGP_READS_AHEAD ? 64 : 32);
constexpr int kOrderBarrier = 1;     // ids 1, 2: whose turn the tensor cores are (pingpong)
constexpr int kEpilogueBarrier = 3;  // ids 3, 4: one per consumer
constexpr int kReadyBarrier = 5;     // the mbarriers are initialised

using Epilogue = RingEpilogue<HGP_OF_C(kShareN), HGP_STREAMING, HGP_BULK_BLOCKS>;
using Reduce = ClusterReduce<kTileN, kSplitK, kConsumerThreads>;
using Range = KRange<kTileK, kSplitK>;
using Cursor = RingCursor<kStages>;

struct Barriers {
  RingBarriers<kStages> ring;
  u64 share;  // this CTA's columns have come from all CTAs of the cluster
};

struct Tiles {
  int clusters_m, clusters_n, total, step, first;
  u32 rank_m, rank_n;
  TileIndex only;  // where there is no other

  __device__ __forceinline__ Tiles(int m, int n) {
    const u32 rank = kClusterM * kClusterN > 1 ? cluster_rank() : 0;
    rank_m = rank % kClusterM;
    rank_n = rank / kClusterM;
    clusters_m = ceil_div(m, kTileM * kClusterM);
    clusters_n = ceil_div(n, kTileN * kClusterN);
    total = clusters_m * clusters_n;
    step = gridDim.x / kClusterSize;
    first = blockIdx.x / kClusterSize;
    if (!HGP_PERSISTENT) {
      only = found(first);
      have(only.m), have(only.n);
    }
  }
  // First row and column of this CTA's share of cluster tile t.
  __device__ __forceinline__ TileIndex origin(int t) const { return !HGP_PERSISTENT ? only : found(t); }

 private:
  __device__ __forceinline__ TileIndex found(int t) const {
    const TileIndex at = tile_at<HGP_GROUP, HGP_RASTER_N, !HGP_PERSISTENT>(t, clusters_m, clusters_n);
    return {(at.m * kClusterM + (int)rank_m) * kTileM, (at.n * kClusterN + (int)rank_n) * kTileN};
  }
};

// Setup: all threads. Leaves the maps on their way and the barriers made; who has come past meet() sees them.
__device__ __forceinline__ void open(int warp, Barriers& barriers, const TensorMap* map_a, const TensorMap* map_b) {
  constexpr int kReleases = 4 * kReaders * kPeers;
  // Of what opens a kernel sooner persistent ones gain nothing, and are left as they were measured.
  if constexpr (HGP_PERSISTENT) {
    open_ring_alone(threadIdx.x == kConsumerThreads, barriers.ring, kReleases, map_a, map_b,
                    [&] { barrier_init(&barriers.share, 1); });
  } else {
    open_ring<true>(warp, kConsumers * 4, barriers.ring, kReleases, &barriers.share,
                    kSplitK > 1 ? Reduce::arriving_bytes() : 0, map_a, map_b);
  }
}

// Setup: all threads. Leaves them free to use the barriers, those of their cluster's other CTAs as well.
__device__ __forceinline__ void meet(bool producer) {
  if (kClusterSize > 1) {
    __syncwarp();
    cluster_sync();
  } else if (!HGP_PERSISTENT) {
    __syncthreads();
  } else {
    ring_is_open<kThreads>(producer, kReadyBarrier);
  }
}

// Load: one thread. Asks for one stage of the tile at `at`, this CTA's slices of what the cluster shares.
__device__ __forceinline__ void load_stage(u8* stage, u64* full, const TensorMap* map_a, const TensorMap* map_b,
                                           const Tiles& tiles, TileIndex at, int k) {
  u16 mask_a = 0, mask_b = 0;
  if (kClusterN > 1) {
    for (int j = 0; j < kClusterN; ++j) mask_a |= 1 << (tiles.rank_m + kClusterM * j);
  }
  if (kClusterM > 1) mask_b = ((1 << kClusterM) - 1) << (kClusterM * tiles.rank_n);
#pragma unroll
  for (int slab = 0; slab < kSlabs; ++slab) {
    OperandA::load<kClusterN>(StageLayout::slab_a(stage, slab), map_a, full, at.m, k + slab * 64, tiles.rank_n, mask_a);
    OperandB::load<kClusterM>(StageLayout::slab_b(stage, slab), map_b, full, at.n, k + slab * 64, tiles.rank_m, mask_b);
  }
}

// Load: one thread of the producer's first warp. Asks for all stages of all tiles; in a kernel of one tile for all but
// the first.
__device__ __forceinline__ void produce(u8* ring, Barriers& barriers, const TensorMap* map_a, const TensorMap* map_b,
                                        const Tiles& tiles, Range range) {
  Cursor cursor;
  if (!HGP_PERSISTENT) cursor.advance();
  for (int t = tiles.first; t < tiles.total; t += tiles.step) {
    const TileIndex at = tiles.origin(t);
    for (int i = HGP_PERSISTENT ? range.begin : range.begin + 1; i < range.end; ++i) {
      u64* full = barriers.ring.full[cursor.stage];
      if (HGP_PERSISTENT || i >= range.begin + kStages)
        barrier_wait(&barriers.ring.empty[cursor.stage], cursor.parity ^ 1);
      barrier_expect(full, kStageBytes);
      load_stage(ring + cursor.stage * kStageBytes, full, map_a, map_b, tiles, at, i * kTileK);
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
    const u32 other_n = lane - kClusterM;  // columns of the cluster but this CTA's own
    const u32 n = lane < kClusterM ? tiles.rank_n : other_n + (other_n >= tiles.rank_n);
    barrier_arrive_remote(&barriers.ring.empty[stage], m + kClusterM * n);
  }
}

extern "C" __global__ void __launch_bounds__(kThreads, HGP_CTAS_PER_SM)
    HGP_SYMBOL(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b, HGP_OUTPUT, int m,
               int n, int k HGP_LDC HGP_ADDEND) {
  extern __shared__ u8 dynamic_smem[];
  __shared__ Barriers barriers;

  // Setup, all threads: the barriers, this CTA's tiles and its part of K.
  u8* ring = HGP_FIRST_SLAB(dynamic_smem);
  u8* staging = ring + kStages * kStageBytes;
  const int warp = warp_uniform(threadIdx.x / 32);
  const bool producer = warp >= kConsumers * 4;
  open(warp, barriers, &map_a, &map_b);
  const Tiles tiles(m, n);
  const Range range(k, kSplitK > 1 ? cluster_rank() : 0);
  const int k_tiles = range.count();
  meet(producer);
  if constexpr (!HGP_READS_AHEAD) wait_for_upstream();

  // Load, first stage of a kernel of one tile, by a lane of the producer's first warp. Here and not with the others,
  // whose code lies far away.
  if (!HGP_PERSISTENT && warp == kConsumers * 4 && elected()) {
    barrier_expect(barriers.ring.full[0], kStageBytes);
    load_stage(ring, barriers.ring.full[0], &map_a, &map_b, tiles, tiles.only, range.begin * kTileK);
  }
  if constexpr (!HGP_READS_AHEAD) allow_dependents();

  if (producer) {
    // Load, the rest, by one thread of the producer's first warp. The second warp keeps the door.
    if (kReallocate) give_registers<40>();
    if constexpr (HGP_READS_AHEAD) {
      if (warp == kConsumers * 4 + 1) keep_door<HGP_TRIGGERS_EARLY>();
    }
    const bool issues = HGP_PERSISTENT ? threadIdx.x == kConsumerThreads : warp == kConsumers * 4 && elected();
    if (issues) produce(ring, barriers, &map_a, &map_b, tiles, range);
  } else {
    if (kReallocate) take_registers<232>();
    const int consumer = warp / 4;
    const int first_block = kPingpong ? 0 : consumer * kBlocks;
    const auto release = [&](int stage) { release_stage(barriers, stage, tiles); };
    Cursor cursor;
    u32 turn = 0;
    int t = tiles.first;
    if (kPingpong && consumer == 1) {
      named_arrive(kOrderBarrier, 256);
      t += tiles.step;
      cursor.skip(k_tiles);
    }
    // Multiply, reduce, store, each consumer warpgroup: its rows of every tile or, in turn, whole tiles.
    for (; t < tiles.total; t += kPingpong ? 2 * tiles.step : tiles.step) {
      // Multiply: all of K. Leaves the sums in registers.
      const TileIndex at = tiles.origin(t);
      float acc[kBlocks][kTileN / 2];
      // In turn, tile by tile: a parity wait one whole ring round ahead would pass too early.
      if (kPingpong) named_sync(kOrderBarrier + consumer, 256);
      const int last =
          multiply_ring<OperandA, OperandB, kSlabs>(acc, ring, barriers.ring, cursor, k_tiles, first_block, release);
      if (kPingpong) {
        // Issued, not finished: the other consumer's products queue up behind these without a gap.
        if (t + tiles.step < tiles.total) named_arrive(kOrderBarrier + 1 - consumer, 256);
        cursor.skip(k_tiles);
      }
      wgmma_wait<0>();
      release(last);
      if constexpr (HGP_READS_AHEAD) wait_for_upstream();
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
        const int row = at.m + (first_block + block) * 64;
#if HGP_SPLIT_K > 1
        // Reduce: leaves the CTA's columns of the 64 rows, added over the cluster, in registers.
        float share[kShareN / 2];
        u8* inbox = staging + kConsumers * 4 * Epilogue::kWarpBytes;
        Reduce::sum(acc[block], share, inbox, &barriers.share, cluster_rank(), threadIdx.x);
        const int column = at.n + (int)cluster_rank() * kShareN;
#else
        float (&share)[kTileN / 2] = acc[block];
        const int column = at.n;
#endif
        // Store: the 64 rows, while the other warpgroup multiplies (pingpong).
        HGP_FINISH(share, row, column);
        HGP_STORE_BLOCK(HGP_FINISHED(share), row, HGP_OF_C(column), staging, warp, kEpilogueBarrier, turn);
      }
    }
    finish_stores();
  }
  // Finish, all threads. A grid never ends before the one ahead.
  if constexpr (HGP_READS_AHEAD) wait_together();
  // No CTA may leave while a peer can still write into its ring or arrive on its barriers.
  if (kPeers > 1) {
    __syncwarp();
    cluster_sync();
  }
}
