// Family sm90_unaligned. C[M,N] = A * B where no tensor map can be: N or K no multiple of 8, addresses off 16 bytes,
// rows that begin anywhere. fp32 accumulate, layouts nn, nt, tn and tt, fp16 and bf16.
//
// Idea: whole warpgroups of producers copy into a ring of stages, each operand by the widest access that its address
// and stride allow: cp.async of 16, 8 or 4 bytes, else loads of 2 bytes that go through registers. The stages look as
// tensor maps would have filled them (common/operand.cuh), so one or two consumer warpgroups multiply them by wgmma.
// CTAs of a cluster may share a tile by K and add their parts through distributed shared memory.
// Valid: any M, N and K, with split_k a k-tile at least for each CTA; addresses and strides that the bytes divide.
// Nothing outside the operands is read: the last access of a row takes only what the row has.
// Build: NVRTC, --gpu-architecture=sm_90a, genes as HGP_* macros (generator/families/unaligned.py).
#include "common/cluster_reduce.cuh"
#include "common/epilogue.cuh"
#include "common/finish.cuh"
#include "common/ring.cuh"

constexpr int kTileM = HGP_TILE_M;
constexpr int kTileN = HGP_TILE_N;
constexpr int kTileK = 64;
constexpr int kStages = HGP_STAGES;
constexpr int kConsumers = HGP_CONSUMERS;
constexpr int kSplitK = HGP_SPLIT_K;  // CTAs of a cluster that share a tile
constexpr int kBatch = HGP_BATCH;     // loads of 2 bytes that a thread has in flight, in pairs
constexpr int kBytesC = HGP_C_BYTES;  // of a store
constexpr int kProducerThreads = HGP_PRODUCERS * 128;
constexpr int kConsumerThreads = kConsumers * 128;
constexpr int kThreads = kConsumerThreads + kProducerThreads;
constexpr int kBlocks = kTileM / kConsumers / 64;
constexpr int kShareN = kTileN / kSplitK;  // columns that a CTA stores
// Arrivals of a producer thread on a stage: its cp.async report one, what it stores itself another.
constexpr bool kCopies = HGP_A_BYTES > 2 || HGP_B_BYTES > 2;
constexpr bool kStores = HGP_A_BYTES == 2 || HGP_B_BYTES == 2;

using OperandA = Operand<kTileM, HGP_A_MN_MAJOR>;
using OperandB = Operand<kTileN, HGP_B_MN_MAJOR>;
#if HGP_WIDE
// Behind both slabs the tails of their lines.
constexpr int kTailsA = HGP_A_BYTES == 16 ? 0 : OperandA::kSlabBytes / OperandA::kSwizzle * 16;
constexpr int kTailsB = HGP_B_BYTES == 16 ? 0 : OperandB::kSlabBytes / OperandB::kSwizzle * 16;
constexpr int kStageBytes = OperandA::kSlabBytes + OperandB::kSlabBytes + (kTailsA + kTailsB + 1023) / 1024 * 1024;
#else
constexpr int kStageBytes = OperandA::kSlabBytes + OperandB::kSlabBytes;
#endif
using Reduce = ClusterReduce<kTileN, kSplitK, kConsumerThreads>;
using Range = KRange<kTileK, kSplitK>;
using Cursor = RingCursor<kStages>;

struct Barriers {
  u64 full[kStages];
  u64 empty[kStages];
  u64 share;  // this CTA's columns have come from all CTAs of the cluster
};

// `bytes` of kBytes, zeros behind them. 16 bytes can pass L1, fewer cannot.
template <int kBytes>
__device__ __forceinline__ void copy_some(u32 to, const u16* from, int bytes) {
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(kBytes), "r"(bytes)
                 : "memory");
  }
}

// `bar` counts this thread once all its copies so far have landed.
__device__ __forceinline__ void arrive_with_copies(u64* bar) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(smem_address(bar)) : "memory");
}

// An element, or zero where not `inside`.
__device__ __forceinline__ u32 load_element(const u16* p, bool inside) {
  u16 value = 0;
  asm volatile("{ .reg .pred p;\nsetp.ne.b32 p, %2, 0;\n@p ld.global.b16 %0, [%1]; }"
               : "+h"(value)
               : "l"(p), "r"((int)inside)
               : "memory");
  return value;
}

__device__ __forceinline__ void store_shared4(u32 address, u32 v) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(v) : "memory");
}

__device__ __forceinline__ u32 load_shared4(u32 address) {
  u32 v;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(v) : "r"(address) : "memory");
  return v;
}
__device__ __forceinline__ u16 load_shared2(u32 address) {
  u16 v;
  asm volatile("ld.shared.b16 %0, [%1];" : "=h"(v) : "r"(address) : "memory");
  return v;
}

// One operand of a tile, by all producers: the slab of 64 of K whose first k is `first`. A unit is what one access
// brings, or two neighbours of 2 bytes. A line of shared memory is a row's 64 of K, or the kAtom rows of one k; its
// units are those of neighbouring threads. What lies outside the matrix becomes zeros.
template <int kRows, bool kMnMajor, int kBytes>
struct UnalignedCopy {
  using Box = Operand<kRows, kMnMajor>;
  static constexpr int kUnit = kBytes == 2 ? 4 : kBytes;
  static constexpr int kWidth = kUnit / kElementBytes;
  static constexpr int kLineBytes = kMnMajor ? Box::kSwizzle : 128;
  static constexpr int kUnits = kLineBytes / kUnit;             // of a line
  static constexpr int kStep = kProducerThreads / kUnits;       // lines that all threads copy at once
  static constexpr int kStepBytes = kProducerThreads * kUnit;   // of shared memory
  static constexpr int kSteps = Box::kSlabBytes / kStepBytes;   // of a slab
  static constexpr int kAtomSteps = kMnMajor ? 64 / kStep : 1;  // steps from an atom to the next
  static constexpr int kBits = kLineBytes == 128 ? 7 : 3;       // of the swizzle
  static_assert(kSteps * kStepBytes == Box::kSlabBytes && kStepBytes >= 512 && kStep <= 64, "whole steps");

  u32 to;           // of this thread's first unit, from the slab's start on
  const u16* from;  // what comes there, at k = 0
  i64 pitch;        // elements from one line of a step to that of the next
  int ld, rows, k;  // rows: from this thread's first on
  int line, unit;   // of the first unit; elements of its line before it

  __device__ __forceinline__ UnalignedCopy(const u16* matrix, int ld, int rows, int k, int first, int thread)
      : pitch((i64)kStep * ld), ld(ld), k(k) {
    line = thread / kUnits;
    unit = thread % kUnits * kWidth;
    const u32 place = thread * kUnit;
    to = place ^ (place >> 7 & kBits) << 4;
    this->rows = rows - first - (kMnMajor ? unit : line);
    from = matrix + (kMnMajor ? (i64)line * ld + first + unit : (i64)(first + line) * ld + unit);
  }

  // Where step i of the slab at `slab` goes.
  __device__ __forceinline__ u32 target(u32 slab, int i) const {
    const int down = i * kStepBytes;
    return slab + (to ^ (down >> 7 & kBits) << 4) + down;
  }
  // What comes there, after `last` in the step before; `start` in the first. Sums are less work than products.
  __device__ __forceinline__ const u16* source(const u16* start, const u16* last, int i) const {
    if (kMnMajor && i % kAtomSteps == 0) return start + i / kAtomSteps * Box::kAtom;
    return i == 0 ? start : last + pitch;
  }
  // How many elements of that unit the matrix has; more than kWidth, or less than none, where all or none.
  __device__ __forceinline__ int left(int first, int i) const {
    if constexpr (kMnMajor) {
      return first + line + i % kAtomSteps * kStep < k ? rows - i / kAtomSteps * Box::kAtom : 0;
    }
    return i * kStep < rows ? k - first - unit : 0;
  }

  __device__ __forceinline__ void slab(u8* slab, int first) const {
    const u32 at = smem_address(slab);
    const u16* const start = from + (kMnMajor ? (i64)first * ld : first);
    const u16* p = start;
    if constexpr (kBytes > 2) {
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
        p = source(start, p, i);
        const int have = left(first, i) * kElementBytes;
        copy_some<kBytes>(target(at, i), p, have < 0 ? 0 : min_of(have, kBytes));
      }
    } else {
#pragma unroll 1
      for (int base = 0; base < kSteps; base += kBatch) {
        u32 low[kBatch], high[kBatch];
#pragma unroll
        for (int j = 0; j < kBatch; ++j) {
          if (base + j >= kSteps) continue;
          p = source(start, p, base + j);
          const int have = left(first, base + j);
          low[j] = load_element(p, have > 0);
          high[j] = load_element(p + 1, have > 1);
        }
#pragma unroll
        for (int j = 0; j < kBatch; ++j) {
          if (base + j < kSteps) store_shared4(target(at, base + j), low[j] | high[j] << 16);
        }
      }
    }
  }
};
#if HGP_WIDE
#include "sm90/unaligned_wide.cuh"
#else
using CopyA = UnalignedCopy<kTileM, HGP_A_MN_MAJOR, HGP_A_BYTES>;
using CopyB = UnalignedCopy<kTileN, HGP_B_MN_MAJOR, HGP_B_BYTES>;

// Load: all producer threads. Fills the stages of `range`; what goes through registers last, while copies are on their
// way.
__device__ __forceinline__ void produce(u8* ring, Barriers& barriers, const CopyA& a, const CopyB& b, Range range) {
  Cursor cursor;
#pragma unroll 1
  for (int i = range.begin; i < range.end; ++i) {
    u8* stage = ring + cursor.stage * kStageBytes;
    u64* full = &barriers.full[cursor.stage];
    if (i >= range.begin + kStages) barrier_wait(&barriers.empty[cursor.stage], cursor.parity ^ 1);
    if (HGP_A_BYTES > 2) a.slab(stage, i * kTileK);
    if (HGP_B_BYTES > 2) b.slab(stage + OperandA::kSlabBytes, i * kTileK);
    if (kCopies) arrive_with_copies(full);
    if (HGP_A_BYTES == 2) a.slab(stage, i * kTileK);
    if (HGP_B_BYTES == 2) b.slab(stage + OperandA::kSlabBytes, i * kTileK);
    if (kStores) barrier_arrive(full);
    cursor.advance();
  }
}

#endif

// Multiply: each consumer warpgroup, its rows by all stages. Leaves the sums in registers. Threads have written the
// stages, wgmma reads them by another way (the async proxy): a fence stands between.
__device__ __forceinline__ void multiply(float (&acc)[kBlocks][kTileN / 2], u8* ring, Barriers& barriers, int k_tiles,
                                         int first_block) {
  const Descriptor base_a = OperandA::descriptor(ring, first_block);
  const Descriptor base_b = OperandB::descriptor(ring + OperandA::kSlabBytes);
  Cursor cursor;
  int previous = 0;
  for (int i = 0; i < k_tiles; ++i) {
    barrier_wait(&barriers.full[cursor.stage], cursor.parity);
    proxy_fence();
    const Descriptor stage_a = base_a.uniform(cursor.stage * (kStageBytes >> 4));
    const Descriptor stage_b = base_b.uniform(cursor.stage * (kStageBytes >> 4));
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kTileK / 16; ++step) {
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
        Wgmma<kTileN>::template mma<OperandA::kTransposed, OperandB::kTransposed>(
            acc[block], stage_a.at((block * 8192 >> 4) + step * OperandA::kStep), stage_b.at(step * OperandB::kStep),
            i > 0 || step > 0);
      }
    }
    wgmma_commit();
    if (i > 0) {
      wgmma_wait<1>();
      release_by_warp(&barriers.empty[previous]);
    }
    previous = cursor.stage;
    cursor.advance();
  }
  wgmma_wait<0>();
}

#include "sm90/unaligned_store.cuh"

extern "C" __global__ void __launch_bounds__(kThreads, HGP_CTAS_PER_SM)
    HGP_SYMBOL(const u16* a, const u16* b, u16* c, int m, int n, int k, int lda, int ldb, int ldc HGP_ADDEND) {
  extern __shared__ u8 dynamic_smem[];
  __shared__ Barriers barriers;

  // Setup, all threads: the barriers, this CTA's tile and its part of K.
  u8* ring = HGP_FIRST_SLAB(dynamic_smem);
  u8* staging = ring + kStages * kStageBytes;
  const int warp = warp_uniform(threadIdx.x / 32);
  if (warp == 0 && elected()) {
    for (int s = 0; s < kStages; ++s) {
      barrier_init(&barriers.full[s], HGP_WIDE ? kProducerThreads / 32 : kProducerThreads * (kCopies + kStores));
      barrier_init(&barriers.empty[s], kConsumers * 4);
    }
    barrier_init(&barriers.share, 1);
    barrier_init_fence();
    if (kStages < 3) __syncwarp(__activemask());  // as in open_ring
    if (kSplitK > 1) barrier_expect(&barriers.share, Reduce::arriving_bytes());
  }
  const u32 rank = kSplitK > 1 ? cluster_rank() : 0;
  const int rows = (int)gridDim.x / kSplitK;
  const int tile = (int)blockIdx.y * rows + (int)blockIdx.x / kSplitK;
  const TileIndex place = tile_at<HGP_GROUP, false, true>(tile, rows, (int)gridDim.y);
  const TileIndex at{place.m * kTileM, place.n * kTileN};
  const Range range(k, rank);
  if (kSplitK > 1) {
    cluster_sync();  // others send to `share`
  } else {
    __syncthreads();
  }
  wait_for_upstream();
  allow_dependents();

  if (warp >= kConsumers * 4) {
    if (HGP_REALLOCATE) give_registers<HGP_PRODUCER_REGISTERS>();
    const int thread = threadIdx.x - kConsumerThreads;
#if HGP_WIDE
    constexpr int kSlabs = OperandA::kSlabBytes + OperandB::kSlabBytes;
    const CopyA copy_a(a, lda, m, k, at.m, thread, kSlabs);
    const CopyB copy_b(b, ldb, n, k, at.n, thread, kSlabs + kTailsA - OperandA::kSlabBytes);
    produce(ring, barriers, copy_a, copy_b, range);
#else
    produce(ring, barriers, CopyA(a, lda, m, k, at.m, thread), CopyB(b, ldb, n, k, at.n, thread), range);
#endif
    return;
  }
  if (HGP_REALLOCATE) take_registers<HGP_CONSUMER_REGISTERS>();
  const int first_block = warp / 4 * kBlocks;
  float acc[kBlocks][kTileN / 2];
  multiply(acc, ring, barriers, range.count(), first_block);
  const Output out{c, ldc, m, n HGP_GIVE_ADDEND};
  const u32 staged = smem_address(staging) + warp * StagedEpilogue<kShareN, false>::kWarpBytes;
#pragma unroll
  for (int block = 0; block < kBlocks; ++block) {
    const int row = at.m + (first_block + block) * 64;
#if HGP_SPLIT_K > 1
    // Reduce: leaves the CTA's columns of the 64 rows, added over the cluster, in registers.
    float share[kShareN / 2];
    u8* inbox = staging + kConsumers * 4 * StagedEpilogue<kShareN, false>::kWarpBytes;
    Reduce::sum(acc[block], share, inbox, &barriers.share, rank, threadIdx.x);
    const int column = at.n + (int)rank * kShareN;
#else
    float (&share)[kTileN / 2] = acc[block];
    const int column = at.n;
#endif
    out.finish(share, row, column);
    out.store(share, row, column, staged);
  }
}
