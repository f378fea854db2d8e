// Family sm90_oneshot. C[M,N] = A[M,K] * B for problems of 2 to 5 us, where latency is all there is. fp32 accumulate,
// layouts nn, nt, tn and tt, fp16 and bf16.
//
// Idea: a CTA owns a tile and asks for its whole slice of K at once. One thread issues every copy as the first thing
// it does, one mbarrier counts each group of slabs (64 of K), and the warpgroups multiply group by group as they land:
// no ring, no producer warp, nothing is ever waited for twice. With `cp_async` all threads copy, each 16 bytes at a time
// (common/thread_copy.cuh). With `split` above 1 the CTAs of a cluster take one slice each and add their accumulators
// through distributed shared memory; their one barrier is entered once the copies are on their way, and passed before
// the first has landed.
// Valid: M and N up to 32768, N a multiple of 8 (32 for the grouped epilogue), M of 8 where A is stored [K,M], K a
// multiple of 8, at most split * k_slice and more than (split - 1) * k_slice; 16-byte aligned operands.
// Build: NVRTC, --gpu-architecture=sm_90a, genes as HGP_* macros (generator/families/oneshot.py).
#include "common/cluster_reduce.cuh"
#include "common/epilogue.cuh"
#include "common/finish.cuh"
#include "common/operand.cuh"
#include "common/schedule.cuh"
#include "common/thread_copy.cuh"

constexpr int kTileM = HGP_TILE_M;  // 64 rows a warpgroup
constexpr int kTileN = HGP_TILE_N;
constexpr int kSlice = HGP_K_SLICE;     // K of one CTA
constexpr int kGroup = HGP_SLAB_GROUP;  // slabs that one mbarrier counts
constexpr int kSplit = HGP_SPLIT;       // CTAs of a cluster, all on one tile

constexpr int kThreads = kTileM * 2;
constexpr int kGroups = kSlice / 64 / kGroup;
// What a CTA stores: its share of each thread's accumulators, whole blocks of 8 columns (4 floats a thread) or part of
// one: the upper or lower 8 of each 16 rows (2 floats), or of these the even or odd columns (1).
constexpr int kShare = kTileN / 2 / kSplit;
constexpr int kShareN = kShare * 2;  // columns of a share of whole blocks
// What of these is C. No constants: see operand.cuh.
enum { kStored = HGP_OF_C(kShare), kStoredN = HGP_OF_C(kShareN) };

// Store: each warp, its 16 rows of the CTA's share. The epilogues have no branch, unlike those of common/epilogue.cuh:
// addresses and predicates are worked out in the shadow of the last products, and the stores leave one right behind the
// other.

#if HGP_EPILOGUE_STAGED
// Through shared memory, the warp's own 16 rows: 16-byte stores of whole row pieces.
struct Epilogue {
  using Staged = StagedEpilogue<kStoredN, false>;
  static constexpr int kUnits = Staged::kUnits;
  static constexpr int kWarpBytes = kStoredN / Staged::kChunk * Staged::kWarpBytes;

  __device__ static __forceinline__ void store(const float (&acc)[kStored], const OutputBlock& out, u32 staging) {
    const int lane = threadIdx.x % 32;
    const int unit = lane % kUnits;
    const int row = out.row + threadIdx.x / 32 % 4 * 16 + lane / kUnits;
    const int column = out.column + unit * 8;
    u16* const first = out.c + (i64)row * out.ldc + column;
    constexpr int kRows = 32 / kUnits;  // that one store of all lanes fills
    constexpr int kChunks = kStoredN / Staged::kChunk;
#pragma unroll
    for (int block = 0; block < kStoredN / 8; block += 2) {
      const float* v = &acc[block * 4];
      const u32 chunk = staging + block / kUnits * Staged::kWarpBytes;
      const u32 at = Staged::address(chunk, lane % 8 + (lane / 8 % 2) * 8, block % kUnits + lane / 16);
      stage_blocks(at, v);
    }
    __syncwarp();
    Vec4 staged[kChunks][kUnits / 2];
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
#pragma unroll
      for (int i = 0; i < kUnits / 2; ++i) {
        staged[chunk][i] =
            load_shared16(Staged::address(staging + chunk * Staged::kWarpBytes, i * kRows + lane / kUnits, unit));
      }
    }
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
#pragma unroll
      for (int i = 0; i < kUnits / 2; ++i) {
        const bool inside = row + i * kRows < out.m && column + chunk * Staged::kChunk < out.n;
        store_if(inside, first + (i64)(i * kRows) * out.ldc + chunk * Staged::kChunk, staged[chunk][i]);
      }
    }
  }
};
#elif HGP_EPILOGUE_GROUPED
// Straight from the accumulators, 16 bytes a store, as B was delivered for it (see GroupedEpilogue).
struct Epilogue {
  static constexpr int kWarpBytes = 0;

  __device__ static __forceinline__ void store(const float (&acc)[kStored], const OutputBlock& out, u32) {
    const int lane = threadIdx.x % 32;
    const int row = out.row + threadIdx.x / 32 % 4 * 16 + lane / 4;
    u16* const first = out.c + (i64)row * out.ldc + out.column + lane % 4 * 8;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int group = 0; group < kStoredN / 32; ++group) {
        const bool inside = row + half * 8 < out.m && out.column + group * 32 < out.n;
        const float* v = &acc[group * 16 + half * 2];
        store_if(inside, first + (i64)(half * 8) * out.ldc + group * 32, grouped_unit(v));
      }
    }
  }
};
#else
// Straight from the accumulators, 4 bytes a store, 16 of a row by the four lanes of a quad: for any B and any share.
struct Epilogue {
  static constexpr int kWarpBytes = 0;

  __device__ static __forceinline__ void store(const float (&acc)[kStored], const OutputBlock& out, u32) {
    const int lane = threadIdx.x % 32;
    const int row = out.row + threadIdx.x / 32 % 4 * 16 + lane / 4;
    u16* const first = out.c + (i64)row * out.ldc + out.column + lane % 4 * 2;
    if constexpr (kStored == 1) {
      store_if(row < out.m && out.column < out.n, first, (u16)pack2(acc[0], 0.0f));
    } else {
#pragma unroll
      for (int i = 0; i < kStored; i += 2) {
        const int below = i / 2 % 2 * 8;
        const int column = i / 4 * 8;
        store_if(row + below < out.m && out.column + column < out.n, first + (i64)below * out.ldc + column,
                 pack2(acc[i], acc[i + 1]));
      }
    }
  }
};
#endif

using A = Operand<kTileM, HGP_A_MN_MAJOR>;
using B = Operand<kTileN, HGP_B_MN_MAJOR, HGP_GROUPED_B>;
using Reduce = ClusterReduce<kTileN, kSplit, kThreads>;

// Dynamic shared memory: slabs (of A, then of B), inbox of the reduction, staging of the epilogue, barriers. The inbox
// stands apart from the slabs: a peer may push while this CTA still multiplies.
constexpr int kSlabBytes = A::kSlabBytes + B::kSlabBytes;
constexpr int kInboxAt = kSlice / 64 * kSlabBytes;
constexpr int kStagingAt = kInboxAt + (kSplit > 1 ? Reduce::kBytes : 0);
constexpr int kBarriersAt = kStagingAt + kThreads / 32 * Epilogue::kWarpBytes;

struct Barriers {
  u64 landed[kGroups];
  u64 share;  // this CTA's columns have come from all CTAs of the cluster
};

struct Origin {
  int row, column;
};

#if HGP_CP_ASYNC
#define HGP_OPERANDS const u16 *a, const u16 *b
#define HGP_STRIDES int lda, int ldb, int ldc
using CopyA = ThreadCopy<kTileM, HGP_A_MN_MAJOR, false, kThreads>;
using CopyB = ThreadCopy<kTileN, HGP_B_MN_MAJOR, HGP_GROUPED_B, kThreads>;

// First element of this cluster's tile: the grid has two dimensions.
__device__ __forceinline__ Origin tile_origin(int) {
  return {(int)blockIdx.x / kSplit * kTileM, (int)blockIdx.y * kTileN};
}

// Load: all threads. Asks for all copies of this CTA, in the order in which they are multiplied.
__device__ __forceinline__ void load(const CopyA& a, const CopyB& b, int k) {
#pragma unroll
  for (int slab = 0; slab < kSlice / 64; ++slab) {
    a.slab(slab * kSlabBytes, k + slab * 64);
    b.slab(slab * kSlabBytes, k + slab * 64);
    if ((slab + 1) % kGroup == 0) commit_copies();
  }
}

__device__ __forceinline__ void wait_for_group(Barriers&, int group) {
  wait_for_copies_of_all<kGroups - 1, HGP_READS_AHEAD ? kThreads : 0>(kGroups - 1 - group);
}
#else
#define HGP_OPERANDS const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b
#define HGP_STRIDES int ldc

// First element of this cluster's tile; tiles follow each other along M, and there are fewer than 2^20.
__device__ __forceinline__ Origin tile_origin(int m) {
  const int tile = blockIdx.x / kSplit;
  const int rows = ceil_div(m, kTileM);
  const int column = quick_quotient(tile, rows);
  return {(tile - column * rows) * kTileM, column * kTileN};
}

// Load: one thread. Asks for all copies of this CTA, in the order in which they are multiplied.
__device__ __forceinline__ void load(u8* slabs, Barriers& barriers, const TensorMap* map_a, const TensorMap* map_b,
                                     Origin at, int k) {
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    u64* landed = &barriers.landed[group];
    barrier_expect(landed, kGroup * kSlabBytes);
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      const int slab = group * kGroup + i;
      u8* a = slabs + slab * kSlabBytes;
      A::load(a, map_a, landed, at.row, k + slab * 64);
      B::load(a + A::kSlabBytes, map_b, landed, at.column, k + slab * 64);
    }
  }
}

__device__ __forceinline__ void wait_for_group(Barriers& barriers, int group) {
  barrier_wait(&barriers.landed[group], 0);
}
#endif

// Multiply: each warpgroup. Makes all products of its 64 rows, and leaves the sums in its registers.
__device__ __forceinline__ void multiply(float (&acc)[kTileN / 2], const u8* slabs, Barriers& barriers, int warpgroup) {
  const Descriptor base_a = A::descriptor(slabs, warpgroup);
  const Descriptor base_b = B::descriptor(slabs + A::kSlabBytes);
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    wait_for_group(barriers, group);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kGroup * 4; ++step) {
      const u32 slab = (group * kGroup + step / 4) * (kSlabBytes >> 4);
      Wgmma<kTileN>::template mma<A::kTransposed, B::kTransposed>(
          acc, base_a.at(slab + step % 4 * A::kStep), base_b.at(slab + step % 4 * B::kStep), group > 0 || step > 0);
    }
  }
  wgmma_commit();
  wgmma_wait<0>();
}

extern "C" __global__ void __launch_bounds__(kThreads + (HGP_READS_AHEAD ? 32 : 0))
    HGP_SYMBOL(HGP_OPERANDS, u16* c, int m, int n, int k, HGP_STRIDES HGP_ADDEND) {
  extern __shared__ __align__(1024) u8 smem[];
  Barriers& barriers = *reinterpret_cast<Barriers*>(smem + kBarriersAt);
  const Origin at = tile_origin(m);
  const int rank = blockIdx.x % kSplit;

#if HGP_CP_ASYNC
  // Load, all threads but the warp at the door: all copies. Then setup, one lane: the barrier of the sum.
  if (!HGP_READS_AHEAD || threadIdx.x < kThreads) {
    const CopyA copy_a(smem, a, lda, m, k, at.row);
    const CopyB copy_b(smem + A::kSlabBytes, b, ldb, n, k, at.column);
    if constexpr (!HGP_READS_AHEAD) wait_for_upstream();
    load(copy_a, copy_b, rank * kSlice);
  }
  if constexpr (!HGP_READS_AHEAD) allow_dependents();
  if (kSplit > 1 && threadIdx.x < 32 && elected()) {
    barrier_init(&barriers.share, 1);
    barrier_init_fence();
    __syncwarp(__activemask());  // keeps the branch, as in open_ring
    barrier_expect(&barriers.share, Reduce::arriving_bytes());
  }
#else
  // Setup and load, one lane of the first warp: the barriers, then all copies. Behind it all threads see the barriers.
  if (threadIdx.x < 32 && elected()) {
    prefetch_map(&map_a);
    prefetch_map(&map_b);
#pragma unroll
    for (int group = 0; group < kGroups; ++group) barrier_init(&barriers.landed[group], 1);
    if (kSplit > 1) barrier_init(&barriers.share, 1);
    barrier_init_fence();
    if constexpr (!HGP_READS_AHEAD) wait_for_upstream();
    load(smem, barriers, &map_a, &map_b, at, rank * kSlice);
    if (kSplit > 1) barrier_expect(&barriers.share, Reduce::arriving_bytes());
  }
  if constexpr (!HGP_READS_AHEAD) {
    wait_for_upstream();
    allow_dependents();
  }
  __syncthreads();
#endif
  if (kSplit > 1) cluster_arrive();
  // The warp behind the others keeps the door, and no more.
  if constexpr (HGP_READS_AHEAD) {
    if (threadIdx.x >= kThreads) return keep_door<HGP_TRIGGERS_EARLY>();
  }

  // Multiply, each warpgroup: its 64 rows over the CTA's slice of K.
  const int warp = threadIdx.x / 32;
  const int warpgroup = kTileM > 64 ? warp_uniform(warp / 4) : 0;
  const int row = at.row + warpgroup * 64;
  const u32 staging = smem_address(smem + kStagingAt) + warp * Epilogue::kWarpBytes;
  // Before a peer's shared memory is written it must run and have its barrier. Passed while the first slabs are still on
  // their way: the wait also empties L1, which would cost more after the products.
  if (kSplit > 1) cluster_wait();
  float acc[kTileN / 2];
  multiply(acc, smem, barriers, warpgroup);

#if HGP_SPLIT > 1
  // Reduce, all threads: leaves the CTA's share of the tile, added over the cluster, in their registers.
  float share[kShare];
  Reduce::sum(acc, share, smem + kInboxAt, &barriers.share, rank, threadIdx.x);

  // Store, each warp: its 16 rows of the share.
  if constexpr (HGP_READS_AHEAD) wait_for_upstream();
  const int first = rank * kShare;  // of the tile's accumulators
  const int below = kShare < 4 ? first / 2 % 2 * 8 : 0;
  const int column = first / 4 * 8 + (kShare == 1 ? first % 2 : 0);
  HGP_FINISH(share, row + below, at.column + column);
  Epilogue::store(HGP_FINISHED(share), OutputBlock{c, ldc, m, HGP_OF_C(n), row + below, HGP_OF_C(at.column + column)},
                  staging);
#else
  // Store, each warp: its 16 rows of the tile. Nothing is to be reduced.
  if constexpr (HGP_READS_AHEAD) wait_for_upstream();
  HGP_FINISH(acc, row, at.column);
  Epilogue::store(HGP_FINISHED(acc), OutputBlock{c, ldc, m, HGP_OF_C(n), row, HGP_OF_C(at.column)}, staging);
#endif
}
