// The ring of shared-memory stages between a producer and its consumers, and the loop that
// multiplies out of it.
#pragma once
#include "common/operand.cuh"
#include "common/schedule.cuh"

// `kParts`: barriers that count a stage as it lands, one for each slab or one for all of them.
template <int kStages, int kParts = 1>
struct RingBarriers {
  u64 full[kStages][kParts];
  u64 empty[kStages];

  // By one thread. `releases` arrivals empty a stage: one of each consumer warp that reads it.
  __device__ __forceinline__ void init(int releases) {
    for (int s = 0; s < kStages; ++s) {
      for (int part = 0; part < kParts; ++part) barrier_init(&full[s][part], 1);
      barrier_init(&empty[s], releases);
    }
  }
};

// Setup of a kernel of one tile, by two warps at once: one lane of the first makes the barriers, one of the producer's
// warp asks for the maps. All threads call it, and meet before the first of them uses a barrier.
// `share` counts what CTAs of the cluster send, `sent` bytes of it; none where nothing is sent. With kMapsFirst the
// maps come first in the text: each family keeps the order that it was measured with, for the cubins differ.
template <bool kMapsFirst, int kFew = 6, int kStages, int kParts>
__device__ __forceinline__ void open_ring(int warp, int producer, RingBarriers<kStages, kParts>& ring, int releases,
                                          u64* share, u32 sent, const TensorMap* map_a, const TensorMap* map_b) {
  const bool opens = warp == 0 && elected();
  if (kMapsFirst && warp == producer && elected()) {
    prefetch_map(map_a);
    prefetch_map(map_b);
  }
  if (opens) {
    ring.init(releases);
    barrier_init(share, 1);
    barrier_init_fence();
    if (sent > 0) {
      // ptxas turns a branch around so few inits into predicates of the arrival alone: the whole warp inits, and to
      // racecheck its other lanes race with the one that arrives. A lane that waits for itself keeps the branch.
      // Kernels with kMapsFirst, and those of kFew inits and more, were measured without it.
      if constexpr (!kMapsFirst && kStages * (kParts + 1) < kFew) __syncwarp(__activemask());
      barrier_expect(share, sent);
    }
  }
  if (!kMapsFirst && warp == producer && elected()) {
    prefetch_map(map_a);
    prefetch_map(map_b);
  }
}

// Setup of a kernel that works through many tiles, by one thread, the one that will load: maps and barriers. `others`
// makes the barriers that the ring has not. All threads call it, and then ring_is_open.
template <int kStages, int kParts, class Others>
__device__ __forceinline__ void open_ring_alone(bool opens, RingBarriers<kStages, kParts>& ring, int releases,
                                                const TensorMap* map_a, const TensorMap* map_b, Others others) {
  if (opens) {
    prefetch_map(map_a);
    prefetch_map(map_b);
    ring.init(releases);
    others();
    barrier_init_fence();
  }
}

// By all kThreads threads: after it each sees the barriers of open_ring_alone. The producer's warps need no one: they
// go on to load while the consumers wait. `id`: a named barrier that nothing else uses.
template <int kThreads>
__device__ __forceinline__ void ring_is_open(bool producer, int id) {
  if (producer) {
    __syncwarp();
    named_arrive(id, kThreads);
  } else {
    named_sync(id, kThreads);
  }
}

// By all lanes of a consumer warp, when it has finished with what `empty` guards: one arrival.
__device__ __forceinline__ void release_by_warp(u64* empty) {
  if (threadIdx.x % 32 == 0) barrier_arrive(empty);
}

// A stage: `kSlabs` slabs of A, then as many of B.
template <class A, class B, int kSlabs>
struct Stage {
  static constexpr int kTileK = kSlabs * 64;
  static constexpr int kBytesA = kSlabs * A::kSlabBytes;
  static constexpr int kBytes = kBytesA + kSlabs * B::kSlabBytes;

  __device__ static __forceinline__ u8* slab_a(u8* stage, int slab) { return stage + slab * A::kSlabBytes; }
  __device__ static __forceinline__ u8* slab_b(u8* stage, int slab) { return stage + kBytesA + slab * B::kSlabBytes; }

  // By one thread: all copies of k-tile `k_tile`, from these rows of A and B, counted on `full`.
  template <int kParts>
  __device__ static __forceinline__ void load(u8* stage, u64 (&full)[kParts], const TensorMap* map_a, int row_a,
                                              const TensorMap* map_b, int row_b, int k_tile) {
#pragma unroll
    for (int slab = 0; slab < kSlabs; ++slab) {
      u64* const landed = &full[slab * kParts / kSlabs];
      if (slab % (kSlabs / kParts) == 0) barrier_expect(landed, kBytes / kParts);
      const int k = k_tile * kTileK + slab * 64;
      A::load(slab_a(stage, slab), map_a, landed, row_a, k);
      B::load(slab_b(stage, slab), map_b, landed, row_b, k);
    }
  }
};

// Issues the products of `k_tiles` stages into `kBlocks` blocks of 64 rows, the first block
// `first_block` of A, and returns the last stage, whose products are still in flight: the caller
// waits for them and releases it. `release(s)` is called by all lanes once this warpgroup has
// finished with stage s. A stage that lands in parts is multiplied part by part, each a group of its own.
template <class A, class B, int kSlabs, int kStages, int kParts, int kBlocks, int kHeld, class Release>
__device__ __forceinline__ int multiply_ring(float (&acc)[kBlocks][kHeld], u8* ring,
                                             RingBarriers<kStages, kParts>& barriers, RingCursor<kStages>& cursor,
                                             int k_tiles, int first_block, Release release) {
  using Layout = Stage<A, B, kSlabs>;
  const Descriptor base_a = A::descriptor(ring, first_block);
  const Descriptor base_b = B::descriptor(Layout::slab_b(ring, 0));
  int previous = 0;
  for (int i = 0; i < k_tiles; ++i) {
    barrier_wait(&barriers.full[cursor.stage][0], cursor.parity);
    const Descriptor stage_a = base_a.uniform(cursor.stage * (Layout::kBytes >> 4));
    const Descriptor stage_b = base_b.uniform(cursor.stage * (Layout::kBytes >> 4));
    wgmma_fence();
#pragma unroll
    for (int slab = 0; slab < kSlabs; ++slab) {
      if (slab > 0 && slab % (kSlabs / kParts) == 0) {
        wgmma_commit();
        barrier_wait(&barriers.full[cursor.stage][slab * kParts / kSlabs], cursor.parity);
        wgmma_fence();
      }
#pragma unroll
      for (int step = 0; step < 4; ++step) {
#pragma unroll
        for (int block = 0; block < kBlocks; ++block) {
          const u64 a = stage_a.at(((slab * A::kSlabBytes + block * 8192) >> 4) + step * A::kStep);
          const u64 b = stage_b.at((slab * B::kSlabBytes >> 4) + step * B::kStep);
          Wgmma<2 * kHeld>::template mma<A::kTransposed, B::kTransposed>(acc[block], a, b,
                                                                         i > 0 || slab > 0 || step > 0);
        }
      }
    }
    wgmma_commit();
    // The groups of the stage before have retired once those of this one alone are in flight: only then is that free.
    if (i > 0) {
      wgmma_wait<kParts>();
      release(previous);
    }
    previous = cursor.stage;
    cursor.advance();
  }
  return previous;
}
