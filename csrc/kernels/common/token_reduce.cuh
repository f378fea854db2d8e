// Sum of a tile of few rows of C (tokens) over the warps of a CTA and then over the CTAs of a cluster that split K, and
// its store. Pushed and counted as in cluster_reduce.cuh; warps are added in their order, then CTAs: deterministic.
#pragma once
#include "common/cluster_reduce.cuh"
#include "common/finish.cuh"

// Rows of C from the first one on, from `column` of the product on; columns >= n are clipped.
struct TokenRows {
  u16* c;
  int ldc, n, column;
#ifdef HGP_ACTIVATION
  const u16* addend;
#endif
};

template <int kTokens, int kColumns, int kWarps, int kRanks, int kThreads>
struct TokenReduce {
  static constexpr int kStride = kColumns + 4;                   // floats of a token; padded against bank conflicts
  static constexpr int kPart = kTokens * kStride;                // floats of one warp
  static constexpr int kTokenUnits = kColumns / 4;               // units of four columns in a token's row
  static constexpr int kShare = kTokens * kTokenUnits / kRanks;  // at most so many units end in one CTA
  static constexpr int kInbox = kRanks * kShare * 4;             // floats

  // Units are dealt to the CTAs in runs of four, one 32-byte sector of C; this CTA's, for `m` tokens.
  __device__ static __forceinline__ int owned(int rank, int m) {
    const int runs = m * kTokenUnits / 4 - rank;
    return runs > 0 ? ceil_div(runs, kRanks) * 4 : 0;
  }
  __device__ static __forceinline__ int arriving_bytes(int rank, int m) { return owned(rank, m) * kRanks * 16; }

  template <int kCount>
  __device__ static __forceinline__ float4 add(const float* parts, int stride) {
    float4 sum = *reinterpret_cast<const float4*>(parts);
#pragma unroll
    for (int i = 1; i < kCount; ++i) {
      const float4 part = *reinterpret_cast<const float4*>(parts + i * stride);
      sum.x += part.x, sum.y += part.y, sum.z += part.z, sum.w += part.w;
    }
    return sum;
  }

  __device__ static __forceinline__ void store_unit(const TokenRows& out, int unit, float4 v) {
    const int column = out.column + unit % kTokenUnits * 4;
    if (column >= out.n) return;
#ifdef HGP_ACTIVATION
    float sums[4] = {v.x, v.y, v.z, v.w};
    finish_row(sums, out.addend, unit / kTokenUnits, column, out.n);
    v = make_float4(sums[0], sums[1], sums[2], sums[3]);
#endif
    *reinterpret_cast<uint2*>(out.c + (i64)(unit / kTokenUnits) * out.ldc + column) =
        make_uint2(pack2(v.x, v.y), pack2(v.z, v.w));
  }

#ifdef HGP_GATE
  // Units of the gate, the first two of each run, with what they let through: 8 columns of C a run.
  __device__ static __forceinline__ void store_gated(const TokenRows& out, int unit, float4 gate, float4 up) {
    const int column = out.column + unit % kTokenUnits * 4;
    if (column >= out.n) return;
    *reinterpret_cast<uint2*>(out.c + (i64)(unit / kTokenUnits) * out.ldc + column / 16 * 8 + column % 8) =
        make_uint2(pack2(HGP_GATE(gate.x) * up.x, HGP_GATE(gate.y) * up.y),
                   pack2(HGP_GATE(gate.z) * up.z, HGP_GATE(gate.w) * up.w));
  }
#endif

  // `sums` holds the warps' parts, tokens below `m` only. With a cluster: `arrived` expects arriving_bytes, and all its
  // CTAs have initialised theirs; `inbox` and `arrived` lie at the same offsets.
  __device__ static __forceinline__ void store(const float* sums, float* inbox, u64* arrived, int rank, int m,
                                               const TokenRows& out) {
    for (int unit = threadIdx.x; unit < m * kTokenUnits; unit += kThreads) {
      const float* parts = sums + unit / kTokenUnits * kStride + unit % kTokenUnits * 4;
      const float4 sum = add<kWarps>(parts, kPart);
      if constexpr (kRanks == 1) {
#ifdef HGP_GATE
        if (unit % 4 < 2) store_gated(out, unit, sum, add<kWarps>(parts + 8, kPart));
#else
        store_unit(out, unit, sum);
#endif
      } else {
        const int owner = unit / 4 % kRanks;
        const int slot = unit / (4 * kRanks) * 4 + unit % 4;
        const float v[4] = {sum.x, sum.y, sum.z, sum.w};
        send16(remote_address(smem_address(inbox + (rank * kShare + slot) * 4), owner),
               remote_address(smem_address(arrived), owner), v);
      }
    }
    if constexpr (kRanks > 1) {
      const int slots = owned(rank, m);
      if (slots == 0) return;  // nothing arrives here
      barrier_wait_cluster(arrived, 0);
      for (int slot = threadIdx.x; slot < slots; slot += kThreads) {
        const int unit = (slot / 4 * kRanks + rank) * 4 + slot % 4;
        const float4 sum = add<kRanks>(inbox + slot * 4, kShare * 4);
#ifdef HGP_GATE
        if (slot % 4 < 2) store_gated(out, unit, sum, add<kRanks>(inbox + slot * 4 + 8, kShare * 4));
#else
        store_unit(out, unit, sum);
#endif
      }
    }
  }
};
