// Sum of the accumulators of all CTAs of a cluster, each CTA ending with its own share of the columns.
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
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%2,%3,%4,%5}, [%1];" ::"r"(
                   remote),
               "r"(remote_barrier), "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3])
               : "memory");
}

template <int kColumns, int kRanks, int kThreads>
struct ClusterReduce {
  static constexpr int kShareBlocks = kColumns / 8 / kRanks;  // 8-column blocks that a CTA ends with
  static constexpr int kShareColumns = kShareBlocks * 8;
  static constexpr int kBytes = kRanks * kShareBlocks * kThreads * 16;  // what arrives at each CTA

  // `inbox` and `arrived` lie at the same offsets in all CTAs; `arrived` expects kBytes. `thread` < kThreads.
  __device__ static __forceinline__ void sum(const float (&acc)[kColumns / 2], float (&share)[kShareColumns / 2],
                                             u8* inbox, u64* arrived, u32 rank, int thread) {
    const u32 local = smem_address(inbox) + thread * 16;
#pragma unroll
    for (int owner = 0; owner < kRanks; ++owner) {
      const u32 barrier = remote_address(smem_address(arrived), owner);
      const u32 base = remote_address(local, owner) + rank * kShareBlocks * kThreads * 16;
#pragma unroll
      for (int j = 0; j < kShareBlocks; ++j) {
        send16(base + j * kThreads * 16, barrier, &acc[(owner * kShareBlocks + j) * 4]);
      }
    }
    barrier_wait(arrived, 0);
#pragma unroll
    for (int j = 0; j < kShareBlocks; ++j) {
#pragma unroll
      for (int source = 0; source < kRanks; ++source) {
        const Vec4 part = load_shared16(local + (source * kShareBlocks + j) * kThreads * 16);
        const float v[4] = {__uint_as_float(part.x), __uint_as_float(part.y), __uint_as_float(part.z),
                            __uint_as_float(part.w)};
#pragma unroll
        for (int i = 0; i < 4; ++i) share[j * 4 + i] = source == 0 ? v[i] : share[j * 4 + i] + v[i];
      }
    }
  }
};
