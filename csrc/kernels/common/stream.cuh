// How a grid that fills the device shares out tiles of C and, of the tiles that make no whole wave, their k-tiles
// (stream-K); and the parts of a tile that go from CTA to CTA through global memory.
// A tile that several CTAs work on belongs to the one with its first k-tiles. That CTA comes to it last in its run,
// while each of the others comes to it first: they leave their part early and wait for nobody, so that nobody waits
// for long, and no circle of waiting can close.
#pragma once
#include "common/schedule.cuh"
#include "common/slice_reduce.cuh"

// K-tiles `begin` to `end` of tile `tile`: a whole tile, or a part of it.
struct Segment {
  int tile, begin, end;
};

// The segments of one CTA. The first tiles are streamed: all their k-tiles, in a row, are cut into a run for each CTA,
// so that a CTA has a tail of a tile, whole tiles and a head of a tile; the rest are dealt in whole waves. kWaves: how
// many waves are streamed, the last of them not whole. Segments of less than kLeast k-tiles are left to a neighbour.
template <int kWaves, int kLeast>
struct Stream {
  u32 ctas, k_tiles, tiles;
  u32 each, rest;  // k-tiles of a run; the first `rest` runs have one more
  u32 at, end;     // what is left of this CTA's run
  u32 whole;       // its next whole tile

  __device__ __forceinline__ Stream(u32 cta, u32 ctas, u32 tiles, u32 k_tiles)
      : ctas(ctas), k_tiles(k_tiles), tiles(tiles) {
    const u32 waves = tiles / ctas;
    const u32 streamed = waves < kWaves ? tiles : tiles - (waves - (kWaves - 1)) * ctas;
    const u32 total = streamed * k_tiles;  // below kWaves * ctas * k_tiles
    each = total / ctas;
    rest = total - each * ctas;
    at = border(cta);
    end = border(cta + 1);
    whole = streamed + cta;
  }

  // The first k-tile of a CTA's run, counted over all streamed tiles. Of CTAs beyond the last: not before the end.
  __device__ __forceinline__ u32 border(u32 cta) const {
    const u32 first = cta * each + (cta < rest ? cta : rest);
    const u32 inside = first % k_tiles;
    if (inside < kLeast) return first - inside;
    return k_tiles - inside < kLeast ? first + k_tiles - inside : first;
  }

  // The next segment of this CTA; false after the last.
  __device__ __forceinline__ bool next(Segment& segment) {
    if (at < end) {
      const u32 tile = at / k_tiles, begin = at - tile * k_tiles;
      segment = {(int)tile, (int)begin, min_of(k_tiles, begin + end - at)};
      at += segment.end - begin;
      return true;
    }
    if (whole >= tiles) return false;
    segment = {(int)whole, 0, (int)k_tiles};
    whole += ctas;
    return true;
  }

  // Whether CTA `cta`, one of those behind the owner of `tile`, has a part of it.
  __device__ __forceinline__ bool shares(u32 cta, u32 tile) const { return border(cta) < (tile + 1) * k_tiles; }
};

// Says that a part is there, once all threads that stored it have met at a barrier with this one.
__device__ __forceinline__ void raise(u8* flag) {
  asm volatile("st.release.gpu.global.u8 [%0], %1;" ::"l"(flag), "r"(1) : "memory");
}

// Waits for `raise` and takes it back. A part has one reader: nobody else looks at the flag.
__device__ __forceinline__ void await_raised(u8* flag) {
  for (u32 raised = 0; raised == 0;) {
    asm volatile("ld.acquire.gpu.global.u8 %0, [%1];" : "=r"(raised) : "l"(flag) : "memory");
  }
  asm volatile("st.relaxed.gpu.global.u8 [%0], %1;" ::"l"(flag), "r"(0) : "memory");
}

// The part of one warpgroup, kBlocks blocks of m64 x kColumns, stored as its threads hold it: 16 bytes of each beside
// those of its neighbours. `kLoads`: about how many loads of 16 bytes a thread has registers for.
template <int kBlocks, int kColumns, int kLoads>
struct TilePart {
  static constexpr int kUnits = kColumns / 8;              // of 16 bytes a thread, in a block
  static constexpr int kPitch = 128 * 4;                   // floats from unit to unit
  static constexpr int kFloats = kBlocks * 64 * kColumns;  // of a part
  static constexpr int kBatch = min_of(kUnits, kLoads);

  // `part` is where this thread's first unit is.
  __device__ static __forceinline__ void leave(const float (&acc)[kBlocks][kColumns / 2], float* part) {
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
      for (int unit = 0; unit < kUnits; ++unit) {
        store_part(part + (block * kUnits + unit) * kPitch, &acc[block][unit * 4]);
      }
    }
  }

  __device__ static __forceinline__ void add(float (&acc)[kBlocks][kColumns / 2], const float* part) {
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
      for (int first = 0; first < kUnits; first += kBatch) {
        if (block + first > 0) __syncwarp();  // ptxas moves no load across it: see slice_reduce.cuh
        float v[kBatch][4];
#pragma unroll
        for (int i = 0; i < kBatch && first + i < kUnits; ++i) {
          load_part(v[i], part + (block * kUnits + first + i) * kPitch);
        }
#pragma unroll
        for (int i = 0; i < kBatch && first + i < kUnits; ++i) {
#pragma unroll
          for (int j = 0; j < 4; ++j) acc[block][(first + i) * 4 + j] += v[i][j];
        }
      }
    }
  }
};
