// Family sm90_writebound. C[M,N] = A * B for K <= 256 and a large C, fp32 accumulate, all layouts, fp16 and bf16.
//
// Idea: writing C is the limit, so nothing may keep the stores waiting. A CTA keeps one B tile, whole K, in shared
// memory while it works down that column of tiles, and a producer warp streams 64-row tiles of A, whole K, through a
// ring. Each consumer warpgroup takes a whole output tile in turn: one stores while another multiplies. The tiles,
// column after column, are dealt to the CTAs in equal contiguous runs; where a run goes on to the next column its B
// tile follows (stages_b 2: while the last products with the old one are still being made).
// Valid: kDepth - 64 < K <= kDepth, a multiple of 8 (TMA fills the rest with zeros); any M (tn, tt: a multiple of 8),
// N a multiple of 8, of 32 for the grouped epilogue; 16-byte aligned operands.
// Build: NVRTC, --gpu-architecture=sm_90a, genes as HGP_* macros (generator/families/writebound.py).
#include "common/epilogue.cuh"
#include "common/finish.cuh"
#include "common/ring.cuh"

constexpr int kTileM = 64;
constexpr int kTileN = HGP_TILE_N;
constexpr int kDepth = HGP_DEPTH;  // of K, whole
constexpr int kStages = HGP_STAGES;
constexpr int kStagesB = HGP_STAGES_B;
constexpr int kConsumers = HGP_CONSUMERS;
constexpr bool kOrdered = HGP_ORDERED;  // the warpgroups multiply one after the other
// A stage must always be read by the same warpgroup: another, a whole round ahead, would pass a parity wait too early.
static_assert(kStages % kConsumers == 0, "");

using OperandA = Operand<kTileM, HGP_A_MN_MAJOR>;
using OperandB = Operand<kTileN, HGP_B_MN_MAJOR, HGP_GROUPED_B>;
constexpr int kSlabs = kDepth / 64;
constexpr int kStageBytes = kSlabs * OperandA::kSlabBytes;
constexpr int kBytesB = kSlabs * OperandB::kSlabBytes;
constexpr int kConsumerThreads = kConsumers * 128;
constexpr int kThreads = kConsumerThreads + (HGP_READS_AHEAD ? 64 : 32);
constexpr int kReadyBarrier = 1;     // the mbarriers are initialised
constexpr int kEpilogueBarrier = 2;  // and up: one a consumer
constexpr int kOrderBarrier = 6;     // and up: a consumer's turn on the tensor cores

using Epilogue = RingEpilogue<HGP_OF_C(kTileN), HGP_STREAMING>;
using Cursor = RingCursor<kStages>;
using CursorB = RingCursor<kStagesB>;

struct Barriers {
  RingBarriers<kStages> ring;
  u64 full_b[kStagesB][kSlabs];  // by slab: the first products need not wait for the whole of B
  u64 empty_b[kStagesB];
};

// The tiles of this CTA: `count` of them from `begin` on, counted down the columns.
struct Run {
  int rows, begin, count;  // rows: tiles in a column

  __device__ __forceinline__ Run(int m, int n) {
    rows = ceil_div(m, kTileM);
    const int total = rows * ceil_div(n, kTileN);
    const int share = total / (int)gridDim.x;
    const int rest = total - share * (int)gridDim.x;
    const int rank = blockIdx.x;
    begin = rank * share + min_of(rank, rest);
    count = share + (rank < rest);
  }
  // Column of the run's tile `i`; beyond the end, that of its last tile.
  __device__ __forceinline__ int column(int i) const { return (begin + min_of(i, count - 1)) / rows; }
  __device__ __forceinline__ int row(int i, int column) const { return begin + i - column * rows; }
};

// Load: the producer's first thread. Asks for A of every tile of the run, and for B whenever the column is a new one.
__device__ __forceinline__ void produce(u8* ring, u8* tiles_b, Barriers& barriers, const TensorMap* map_a,
                                        const TensorMap* map_b, const Run& run) {
  Cursor cursor;
  CursorB cursor_b;
  int held = -1;
#pragma unroll 1
  for (int i = 0; i < run.count; ++i) {
    const int column = run.column(i);
    const int row = run.row(i, column) * kTileM;
    u64* full = barriers.ring.full[cursor.stage];
    barrier_wait(&barriers.ring.empty[cursor.stage], cursor.parity ^ 1);
    barrier_expect(full, kStageBytes);
#pragma unroll
    for (int slab = 0; slab < kSlabs; ++slab) {
      OperandA::load(ring + cursor.stage * kStageBytes + slab * OperandA::kSlabBytes, map_a, full, row, slab * 64);
    }
    cursor.advance();
    if (column == held) continue;
    held = column;
    barrier_wait(&barriers.empty_b[cursor_b.stage], cursor_b.parity ^ 1);
#pragma unroll
    for (int slab = 0; slab < kSlabs; ++slab) {
      u64* full_b = &barriers.full_b[cursor_b.stage][slab];
      barrier_expect(full_b, OperandB::kSlabBytes);
      OperandB::load(tiles_b + cursor_b.stage * kBytesB + slab * OperandB::kSlabBytes, map_b, full_b, column * kTileN,
                     slab * 64);
    }
    cursor_b.advance();
  }
}

// Multiply: each consumer warpgroup. Issues the products of a tile, as slabs of B arrive, and leaves them in flight.
__device__ __forceinline__ void multiply(float (&acc)[kTileN / 2], Descriptor a, Descriptor b, u64* full_b,
                                         u32 parity_b) {
#pragma unroll
  for (int slab = 0; slab < kSlabs; ++slab) {
    barrier_wait(&full_b[slab], parity_b);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      const u64 slice_a = a.at((slab * OperandA::kSlabBytes >> 4) + step * OperandA::kStep);
      const u64 slice_b = b.at((slab * OperandB::kSlabBytes >> 4) + step * OperandB::kStep);
      Wgmma<kTileN>::mma<OperandA::kTransposed, OperandB::kTransposed>(acc, slice_a, slice_b, slab > 0 || step > 0);
    }
    wgmma_commit();
  }
}

extern "C" __global__ void __launch_bounds__(kThreads, HGP_CTAS_PER_SM)
    HGP_SYMBOL(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b, HGP_OUTPUT, int m,
               int n, int k HGP_LDC HGP_ADDEND) {
  extern __shared__ u8 dynamic_smem[];
  __shared__ Barriers barriers;

  // Setup, all threads: the barriers, this CTA's run of tiles.
  u8* ring = HGP_FIRST_SLAB(dynamic_smem);
  u8* tiles_b = ring + kStages * kStageBytes;
  u8* staging = tiles_b + kStagesB * kBytesB;
  const int warp = warp_uniform(threadIdx.x / 32);
  const bool producer = warp >= kConsumers * 4;
  open_ring_alone(threadIdx.x == kConsumerThreads, barriers.ring, 4, &map_a, &map_b, [&] {
    for (int s = 0; s < kStagesB; ++s) {
      for (int slab = 0; slab < kSlabs; ++slab) barrier_init(&barriers.full_b[s][slab], 1);
      barrier_init(&barriers.empty_b[s], 4 * kConsumers);
    }
  });
  const Run run(m, n);
  ring_is_open<kThreads>(producer, kReadyBarrier);
  if constexpr (!HGP_READS_AHEAD) {
    wait_for_upstream();
    allow_dependents();
  }

  // Load, by the producer's first thread. Its second warp keeps the door. Both end here.
  if (producer) {
    if constexpr (HGP_READS_AHEAD) {
      if (warp > kConsumers * 4) keep_door<HGP_TRIGGERS_EARLY>();
    }
    if (threadIdx.x == kConsumerThreads) produce(ring, tiles_b, barriers, &map_a, &map_b, run);
    // A grid never ends before the one ahead, nor do its threads.
    if constexpr (HGP_READS_AHEAD) wait_for_upstream();
    return;
  }

  const int consumer = warp / 4;
  const Descriptor base_a = OperandA::descriptor(ring);
  const Descriptor base_b = OperandB::descriptor(tiles_b);
  Cursor cursor;
  cursor.skip(consumer);
  CursorB cursor_b;
  int column = run.column(0);
  u32 turn = 0;
  for (int i = consumer;; i += kConsumers) {
    // Columns in which this warpgroup has no tile. It waits for what it lets go: its release of one B tile must not be
    // counted for the one before.
#pragma unroll 1
    for (; column < run.column(i); ++column) {
      for (int slab = 0; slab < kSlabs; ++slab) barrier_wait(&barriers.full_b[cursor_b.stage][slab], cursor_b.parity);
      release_by_warp(&barriers.empty_b[cursor_b.stage]);
      cursor_b.advance();
    }
    if (i >= run.count) break;

    // Multiply, each consumer warpgroup: a whole tile, in turn. Leaves the sums in its registers and the ring free.
    const int row = run.row(i, column) * kTileM;
    const int first_column = column * kTileN;
    float acc[kTileN / 2];
    barrier_wait(barriers.ring.full[cursor.stage], cursor.parity);
    if (kOrdered && i > 0) named_sync(kOrderBarrier + consumer, 256);
    multiply(acc, base_a.uniform(cursor.stage * (kStageBytes >> 4)), base_b.uniform(cursor_b.stage * (kBytesB >> 4)),
             barriers.full_b[cursor_b.stage], cursor_b.parity);
    // Issued, not finished: the next one's products queue up behind these without a gap.
    if (kOrdered && i + 1 < run.count) named_arrive(kOrderBarrier + (consumer + 1) % kConsumers, 256);
    wgmma_wait<0>();
    release_by_warp(&barriers.ring.empty[cursor.stage]);
    cursor.skip(kConsumers);
    if (run.column(i + kConsumers) > column) {  // B is free before the store, not after it
      release_by_warp(&barriers.empty_b[cursor_b.stage]);
      cursor_b.advance();
      ++column;
    }

    // Store, each consumer warpgroup: its tile, while another multiplies. Nothing is to be reduced.
    if constexpr (HGP_READS_AHEAD) wait_for_upstream();
    HGP_FINISH(acc, row, first_column);
    HGP_STORE_BLOCK(HGP_FINISHED(acc), row, HGP_OF_C(first_column), staging, warp, kEpilogueBarrier, turn);
  }
  if constexpr (HGP_READS_AHEAD) wait_for_upstream();
  finish_stores();
}
