// The ring of shared-memory stages between a producer and its consumers, and the loop that
// multiplies out of it.
#pragma once
#include "common/operand.cuh"
#include "common/schedule.cuh"

template <int kStages>
struct RingBarriers {
  u64 full[kStages];
  u64 empty[kStages];

  // By one thread. `releases` arrivals empty a stage: one of each consumer warp that reads it.
  __device__ __forceinline__ void init(int releases) {
    for (int s = 0; s < kStages; ++s) {
      barrier_init(&full[s], 1);
      barrier_init(&empty[s], releases);
    }
  }
};

// What a CTA does first of all, by two warps at once: the first makes the barriers, the producer's asks for the maps.
// `share` counts what CTAs of the cluster send, `sent` bytes of it; none where nothing is sent.
template <int kStages>
__device__ __forceinline__ void open_ring(int warp, int producer, RingBarriers<kStages>& ring, int releases, u64* share,
                                          u32 sent, const TensorMap* map_a, const TensorMap* map_b) {
  if (warp == 0 && elected()) {
    ring.init(releases);
    barrier_init(share, 1);
    barrier_init_fence();
    if (sent > 0) barrier_expect(share, sent);
  }
  if (warp == producer && elected()) {
    prefetch_map(map_a);
    prefetch_map(map_b);
  }
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
  __device__ static __forceinline__ void load(u8* stage, u64* full, const TensorMap* map_a, int row_a,
                                              const TensorMap* map_b, int row_b, int k_tile) {
    barrier_expect(full, kBytes);
#pragma unroll
    for (int slab = 0; slab < kSlabs; ++slab) {
      const int k = k_tile * kTileK + slab * 64;
      A::load(slab_a(stage, slab), map_a, full, row_a, k);
      B::load(slab_b(stage, slab), map_b, full, row_b, k);
    }
  }
};

// Issues the products of `k_tiles` stages into `kBlocks` blocks of 64 rows, the first block
// `first_block` of A, and returns the last stage, whose products are still in flight: the caller
// waits for them and releases it. `release(s)` is called by all lanes once this warpgroup has
// finished with stage s.
template <class A, class B, int kSlabs, int kStages, int kBlocks, int kHeld, class Release>
__device__ __forceinline__ int multiply_ring(float (&acc)[kBlocks][kHeld], u8* ring, RingBarriers<kStages>& barriers,
                                             RingCursor<kStages>& cursor, int k_tiles, int first_block,
                                             Release release) {
  using Layout = Stage<A, B, kSlabs>;
  const Descriptor base_a = A::descriptor(ring, first_block);
  const Descriptor base_b = B::descriptor(Layout::slab_b(ring, 0));
  int previous = 0;
  for (int i = 0; i < k_tiles; ++i) {
    barrier_wait(&barriers.full[cursor.stage], cursor.parity);
    const Descriptor stage_a = base_a.uniform(cursor.stage * (Layout::kBytes >> 4));
    const Descriptor stage_b = base_b.uniform(cursor.stage * (Layout::kBytes >> 4));
    wgmma_fence();
#pragma unroll
    for (int slab = 0; slab < kSlabs; ++slab) {
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
    // The group before this one has retired once one is left in flight: only then is its stage
    // free.
    if (i > 0) {
      wgmma_wait<1>();
      release(previous);
    }
    previous = cursor.stage;
    cursor.advance();
  }
  return previous;
}
