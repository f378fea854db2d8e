// Sum of the accumulators of all CTAs of a cluster where a tile has too few columns to share out
// (swap-AB): each CTA ends with the rows of some of its warps. Otherwise as cluster_reduce.cuh:
// pushed from registers, counted on the owner's mbarrier, added in the order of the ranks.
#pragma once
#include "common/cluster_reduce.cuh"

template <int kBlocks, int kHeld, int kRanks, int kWarps>
struct RowReduce {
  static_assert(kWarps % kRanks == 0 && kHeld % 4 == 0, "whole warps, whole 16-byte units");
  static constexpr int kOwned = kWarps / kRanks;  // warps whose rows a CTA ends with
  static constexpr int kUnits = kBlocks * kHeld / 4;
  static constexpr int kPartBytes = kUnits * kOwned * 32 * 16;  // from one CTA
  static constexpr int kBytes = kRanks * kPartBytes;            // of the inbox

  // A CTA's own part stays in registers.
  __device__ static constexpr int arriving_bytes() { return kBytes - kPartBytes; }

  // Afterwards `acc` is the whole sum in the warps of which true is returned. `inbox` and `arrived`
  // lie at the same offsets in all CTAs; `arrived` expects arriving_bytes; all CTAs of the cluster have
  // initialised theirs.
  __device__ static __forceinline__ bool sum(float (&acc)[kBlocks][kHeld], u8* inbox, u64* arrived, u32 rank,
                                             int warp) {
    const u32 owner = warp / kOwned;
    const u32 mine = smem_address(inbox) + (warp % kOwned * 32 + threadIdx.x % 32) * 16;
    if (owner != rank) {
      const u32 barrier = remote_address(smem_address(arrived), owner);
      const u32 base = remote_address(mine, owner) + rank * kPartBytes;
#pragma unroll
      for (int j = 0; j < kUnits; ++j) {
        send16(base + j * kOwned * 32 * 16, barrier, &acc[j * 4 / kHeld][j * 4 % kHeld]);
      }
      return false;
    }
    barrier_wait_cluster(arrived, 0);
#pragma unroll
    for (int j = 0; j < kUnits; ++j) {
      float* own = &acc[j * 4 / kHeld][j * 4 % kHeld];
      float sum[4];
#pragma unroll
      for (int source = 0; source < kRanks; ++source) {
        const Vec4 part = load_shared16(mine + source * kPartBytes + j * kOwned * 32 * 16);
        const float v[4] = {__uint_as_float(part.x), __uint_as_float(part.y), __uint_as_float(part.z),
                            __uint_as_float(part.w)};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float summand = source == (int)rank ? own[i] : v[i];
          sum[i] = source == 0 ? summand : sum[i] + summand;
        }
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) own[i] = sum[i];
    }
    return true;
  }
};
