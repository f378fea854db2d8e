// Sum of the accumulators of all CTAs of a cluster, each CTA ending with its own share.
// Every thread sends its fragments straight from registers to the owner's shared memory (st.async), which counts them
// on an mbarrier: no second cluster barrier, and no CTA may leave before its own share has arrived, so none is written
// to after its end. Added in the order of the ranks: deterministic.
#pragma once
#include "common/ptx.cuh"

__device__ __forceinline__ u32 remote_address(u32 address, u32 rank) {
  u32 remote;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(rank));
  return remote;
}

__device__ __forceinline__ void send16(u32 remote, u32 remote_barrier, const float* v) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%2,%3,%4,%5}, [%1];" ::"r"(remote),
      "r"(remote_barrier), "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3])
      : "memory");
}

// The same for 8 and 4 bytes.
__device__ __forceinline__ void send8(u32 remote, u32 remote_barrier, const float* v) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%2,%3}, [%1];" ::"r"(remote),
               "r"(remote_barrier), "f"(v[0]), "f"(v[1])
               : "memory");
}
__device__ __forceinline__ void send4(u32 remote, u32 remote_barrier, const float* v) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %2, [%1];" ::"r"(remote),
               "r"(remote_barrier), "f"(v[0])
               : "memory");
}

// A share is the same part of every thread's accumulators: whole blocks of 8 columns, 4 floats a thread each, or a
// half or a quarter of one block.
template <int kColumns, int kRanks, int kThreads>
struct ClusterReduce {
  static constexpr int kShare = kColumns / 2 / kRanks;           // floats that a thread ends with
  static constexpr int kUnit = kShare < 4 ? kShare : 4;          // floats that are sent at once
  static constexpr int kUnits = kShare / kUnit;                  // of each thread, for each CTA
  static constexpr int kBytes = kRanks * kShare * kThreads * 4;  // of the inbox
  static_assert(kShare * kRanks * 2 == kColumns && kUnits * kUnit == kShare && kUnit != 3, "equal shares");

  // What a CTA's own accumulators have for it stays where it is: st.async moves about 10 bytes a clock. Kernels with a
  // cluster of 2 or 4 take 3 to 6% less, of eight 1%. Of 16 finding it among the others takes longer than sending it.
  // Its place in the inbox stays empty.
  __device__ static constexpr bool keeps() { return kRanks <= 8; }
  __device__ static constexpr int arriving_bytes() { return kBytes - (keeps() ? kBytes / kRanks : 0); }

  // `inbox` and `arrived` lie at the same offsets in all CTAs; `arrived` expects arriving_bytes. `thread` < kThreads.
  __device__ static __forceinline__ void sum(const float (&acc)[kColumns / 2], float (&share)[kShare], u8* inbox,
                                             u64* arrived, u32 rank, int thread) {
    constexpr int kStride = kThreads * kUnit * 4;  // bytes from one unit of a thread to its next
    const u32 local = smem_address(inbox) + thread * kUnit * 4;
#pragma unroll
    for (int owner = 0; owner < kRanks; ++owner) {
      if (keeps() && owner == (int)rank) {
#pragma unroll
        for (int i = 0; i < kShare; ++i) share[i] = acc[owner * kShare + i];
        continue;
      }
      const u32 barrier = remote_address(smem_address(arrived), owner);
      const u32 base = remote_address(local, owner) + rank * kUnits * kStride;
#pragma unroll
      for (int j = 0; j < kUnits; ++j) {
        const float* v = &acc[owner * kShare + j * kUnit];
        if constexpr (kUnit == 4) send16(base + j * kStride, barrier, v);
        if constexpr (kUnit == 2) send8(base + j * kStride, barrier, v);
        if constexpr (kUnit == 1) send4(base + j * kStride, barrier, v);
      }
    }
    barrier_wait_cluster(arrived, 0);
#pragma unroll
    for (int j = 0; j < kUnits; ++j) {
      float sum[kUnit];
#pragma unroll
      for (int source = 0; source < kRanks; ++source) {
        float v[kUnit];
        load(v, local + (source * kUnits + j) * kStride);
#pragma unroll
        for (int i = 0; i < kUnit; ++i) {
          if (keeps() && source == (int)rank) v[i] = share[j * kUnit + i];
          sum[i] = source == 0 ? v[i] : sum[i] + v[i];
        }
      }
#pragma unroll
      for (int i = 0; i < kUnit; ++i) share[j * kUnit + i] = sum[i];
    }
  }

 private:
  __device__ static __forceinline__ void load(float (&v)[kUnit], u32 address) {
    if constexpr (kUnit == 4) {
      const Vec4 part = load_shared16(address);
      v[0] = __uint_as_float(part.x), v[1] = __uint_as_float(part.y);
      v[2] = __uint_as_float(part.z), v[3] = __uint_as_float(part.w);
    } else if constexpr (kUnit == 2) {
      asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];" : "=f"(v[0]), "=f"(v[1]) : "r"(address) : "memory");
    } else {
      asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v[0]) : "r"(address) : "memory");
    }
  }
};

// The same where a tile has too few columns to share out (swap-AB): each CTA ends with the rows of some of its warps.
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
