// Family sm90_streamk. C[M,N] = A * B, fp32 accumulate, layouts nn, nt, tn and tt, fp16 and bf16.
//
// Idea: for tiles that fill their last wave badly. The grid is all CTAs that the device runs at once. What makes no
// whole wave of tiles is cut by k-tiles into an equal run for each CTA (common/stream.cuh); the other tiles follow in
// whole waves. One producer warp streams k-tiles by TMA into a ring that goes on from segment to segment, one or two
// consumer warpgroups multiply. A segment that is not the head of its tile leaves fp32 sums in global memory; the CTA
// that has the head adds them in the order of K and stores C. So the sum depends on the number of CTAs, which is the
// device's, and on nothing else. CTAs wait for each other: a cooperative launch.
// Streamed tiles come first: then all CTAs start their runs together, and who waits does so while others have work.
// Valid: any M (tn, tt: a multiple of 8), N and K multiples of 8 (TMA), 16-byte aligned operands; N a multiple of 32
// for the grouped epilogue.
// Build: NVRTC, --gpu-architecture=sm_90a, genes as HGP_* macros (generator/families/streamk.py).
#include "common/epilogue.cuh"
#include "common/ring.cuh"
#include "common/stream.cuh"

constexpr int kTileM = HGP_TILE_M;
constexpr int kTileN = HGP_TILE_N;
constexpr int kTileK = HGP_TILE_K;
constexpr int kStages = HGP_STAGES;
constexpr int kConsumers = kTileM == 64 ? 1 : 2;
constexpr int kBlocks = kTileM / kConsumers / 64;  // of 64 rows, of a consumer
constexpr int kConsumerThreads = kConsumers * 128;
// A whole producer warpgroup, which hands its registers over, where 168 are not enough (see wgmma.cuh).
constexpr bool kReallocate = HGP_REALLOCATE;
constexpr int kThreads = kConsumerThreads + (kReallocate ? 128 : 32);
constexpr int kSlabs = kTileK / 64;
constexpr int kReadyBarrier = 1;  // the mbarriers are initialised
constexpr int kPartBarrier = 2;   // ids 2, 3: one per consumer
using OperandA = Operand<kTileM, HGP_A_MN_MAJOR>;
using OperandB = Operand<kTileN, HGP_B_MN_MAJOR, HGP_EPILOGUE_GROUPED>;
using StageLayout = Stage<OperandA, OperandB, kSlabs>;
using Cursor = RingCursor<kStages>;
using Work = Stream<HGP_WAVES, HGP_LEAST>;
using Part = TilePart<kBlocks, kTileN, HGP_LOADS>;
#if HGP_EPILOGUE_GROUPED
using Epilogue = GroupedEpilogue<kTileN, false>;
#else
using Epilogue = StagedEpilogue<kTileN, false>;
#endif

// First row and column of a tile.
struct Tiles {
  int along_m, along_n;

  __device__ __forceinline__ Tiles(int m, int n) : along_m(ceil_div(m, kTileM)), along_n(ceil_div(n, kTileN)) {}
  __device__ __forceinline__ TileIndex origin(int tile) const {
    const TileIndex at = tile_at<HGP_GROUP, HGP_RASTER_N>(tile, along_m, along_n);
    return {at.m * kTileM, at.n * kTileN};
  }
  __device__ __forceinline__ Work work(int k) const {
    return Work(blockIdx.x, gridDim.x, along_m * along_n, ceil_div(k, kTileK));
  }
};

__device__ __forceinline__ void produce(u8* ring, RingBarriers<kStages>& barriers, const TensorMap* map_a,
                                        const TensorMap* map_b, const Tiles& tiles, int k_size) {
  Work work = tiles.work(k_size);
  Cursor cursor;
  Segment segment;
  while (work.next(segment)) {
    const TileIndex at = tiles.origin(segment.tile);
#pragma unroll 1  // copies of the loop spill some of the 40 registers that a producer keeps
    for (int i = segment.begin; i < segment.end; ++i) {
      u64* full = &barriers.full[cursor.stage];
      u8* stage = ring + cursor.stage * StageLayout::kBytes;
      barrier_wait(&barriers.empty[cursor.stage], cursor.parity ^ 1);
      barrier_expect(full, StageLayout::kBytes);
#pragma unroll
      for (int slab = 0; slab < kSlabs; ++slab) {
        const int k = i * kTileK + slab * 64;
        OperandA::load(StageLayout::slab_a(stage, slab), map_a, full, at.m, k);
        OperandB::load(StageLayout::slab_b(stage, slab), map_b, full, at.n, k);
      }
      cursor.advance();
    }
  }
}

extern "C" __global__ void __launch_bounds__(kThreads, HGP_CTAS_PER_SM)
    HGP_SYMBOL(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b, u16* c, u32* counters,
               float* partials, int m, int n, int k, int ldc) {
  extern __shared__ u8 dynamic_smem[];
  __shared__ RingBarriers<kStages> barriers;
  u8* ring = dynamic_smem + (1024 - (smem_address(dynamic_smem) & 1023)) % 1024;
  const u32 staging = smem_address(ring) + kStages * StageLayout::kBytes;
  const int warp = warp_uniform(threadIdx.x / 32);
  const bool producer = warp >= kConsumers * 4;
  if (threadIdx.x == kConsumerThreads) {
    prefetch_map(&map_a);
    prefetch_map(&map_b);
    barriers.init(4 * kConsumers);
    barrier_init_fence();
  }
  const Tiles tiles(m, n);
  if (producer) {
    __syncwarp();
    named_arrive(kReadyBarrier, kThreads);
  } else {
    named_sync(kReadyBarrier, kThreads);
  }
  wait_for_upstream();
  allow_dependents();

  if (producer) {
    if (kReallocate) give_registers<40>();
    if (threadIdx.x == kConsumerThreads) produce(ring, barriers, &map_a, &map_b, tiles, k);
    return;
  }
  if (kReallocate) take_registers<232>();
  const int consumer = warp / 4, thread = threadIdx.x % 128;
  const auto release = [&](int stage) {
    if (threadIdx.x % 32 == 0) barrier_arrive(&barriers.empty[stage]);
  };
  // Each CTA leaves one part at most. A consumer has a byte of the CTA's counter for a flag.
  const auto flag = [&](int cta) { return reinterpret_cast<u8*>(counters + cta) + consumer; };
  const auto part = [&](int cta) { return partials + (i64)(cta * kConsumers + consumer) * Part::kFloats + thread * 4; };
  Work work = tiles.work(k);
  Cursor cursor;
  Segment segment;
  while (work.next(segment)) {
    // The first product needs no zeros, but the compiler does: where accumulators come into the loop undefined or may be
    // copied before the wait, it serialises the products (C7520, C7514).
    float acc[kBlocks][kTileN / 2] = {};
    const int last = multiply_ring<OperandA, OperandB, kSlabs>(acc, ring, barriers, cursor, segment.end - segment.begin,
                                                               consumer * kBlocks, release);
    wgmma_wait<0>();
    release(last);
#pragma unroll
    for (int i = 0; i < kBlocks * kTileN / 2; ++i) asm volatile("" : "+f"(acc[i / (kTileN / 2)][i % (kTileN / 2)]));
    if (segment.begin > 0) {
      Part::leave(acc, part(blockIdx.x));
      named_sync(kPartBarrier + consumer, 128);
      if (thread == 0) raise(flag(blockIdx.x));
      __syncwarp();  // here and below: else the compiler takes the warp for divergent all through the next products
      continue;
    }
    if (segment.end < (int)work.k_tiles) {
      const int next = blockIdx.x + 1;
      for (int cta = next + thread; work.shares(cta, segment.tile); cta += 128) await_raised(flag(cta));
      named_sync(kPartBarrier + consumer, 128);
      for (int cta = next; work.shares(cta, segment.tile); ++cta) Part::add(acc, part(cta));
    }
    const TileIndex at = tiles.origin(segment.tile);
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      Epilogue::store(acc[block], {c, ldc, m, n, at.m + (consumer * kBlocks + block) * 64, at.n},
                      staging + warp * Epilogue::kWarpBytes);
    }
    __syncwarp();
  }
}
