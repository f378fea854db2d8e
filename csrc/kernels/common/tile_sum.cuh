// Sums of a tile over the warps of a CTA and the CTAs of a cluster, in a fixed order: pairs of neighbours first, so
// that 16 parts take four additions in a row. Elements are counted row by row.
// A CTA of a cluster ends with 1/kRanks of the tile. Parts travel by st.async, which counts them on the owner's
// barrier: no second cluster barrier, and nobody is written to after its end, since it waits for all its parts.
#pragma once
#include "common/cluster_reduce.cuh"
#include "common/ptx.cuh"

template <int kWidth>
struct Floats {
  float v[kWidth];
};

template <int kWidth>
__device__ __forceinline__ Floats<kWidth> read_floats(const float* p) {
  Floats<kWidth> out;
  if constexpr (kWidth == 4) {
    const float4 x = *reinterpret_cast<const float4*>(p);
    out.v[0] = x.x, out.v[1] = x.y, out.v[2] = x.z, out.v[3] = x.w;
  } else {
    const float2 x = *reinterpret_cast<const float2*>(p);
    out.v[0] = x.x, out.v[1] = x.y;
  }
  return out;
}

template <int kWidth>
__device__ __forceinline__ void write_floats(float* p, const Floats<kWidth>& x) {
  if constexpr (kWidth == 4) {
    *reinterpret_cast<float4*>(p) = make_float4(x.v[0], x.v[1], x.v[2], x.v[3]);
  } else {
    *reinterpret_cast<float2*>(p) = make_float2(x.v[0], x.v[1]);
  }
}

// Sum of `kParts` (a power of two) vectors, `stride` floats apart.
template <int kParts, int kWidth>
__device__ __forceinline__ Floats<kWidth> sum_parts(const float* p, int stride) {
  Floats<kWidth> parts[kParts];
#pragma unroll
  for (int i = 0; i < kParts; ++i) parts[i] = read_floats<kWidth>(p + i * stride);
#pragma unroll
  for (int step = 1; step < kParts; step *= 2) {
#pragma unroll
    for (int i = 0; i < kParts; i += 2 * step) {
#pragma unroll
      for (int w = 0; w < kWidth; ++w) parts[i].v[w] += parts[i + step].v[w];
    }
  }
  return parts[0];
}

// Elements that a thread takes at once: as few as keep it busy, so that all threads share the work.
constexpr __host__ __device__ int floats_at_once(int elements, int threads) { return elements >= 4 * threads ? 4 : 2; }

// Where the parts of a tile meet. `inbox` and `arrived` lie at the same offsets in all CTAs of the cluster.
template <int kElements, int kRanks>
struct Meeting {
  static constexpr int kShare = kElements / kRanks;  // elements that a CTA ends with
  float* inbox;                                      // [kRanks][kShare]
  u64* arrived;

  // Every thread; peers may send once all have come past `meet`.
  __device__ __forceinline__ void announce() const {
    if (threadIdx.x == 0) {
      barrier_init(arrived, 1);
      barrier_init_fence();
      barrier_expect(arrived, kElements * 4);
    }
    __syncwarp();
    cluster_arrive();
  }
  __device__ __forceinline__ void meet() const { cluster_wait(); }

  // Sends elements `first` to `first` + kWidth - 1, of this CTA of rank `rank`, to their owner.
  template <int kWidth>
  __device__ __forceinline__ void send(const Floats<kWidth>& x, u32 first, u32 rank) const {
    const u32 owner = first / kShare;
    const u32 to = remote_address(smem_address(inbox + rank * kShare + first % kShare), owner);
    const u32 barrier = remote_address(smem_address(arrived), owner);
    if constexpr (kWidth == 4) {
      send16(to, barrier, x.v);
    } else {
      send8(to, barrier, x.v);
    }
  }

  __device__ __forceinline__ void wait() const { barrier_wait_cluster(arrived, 0); }

  // Element `first` (counted in this CTA's share) and the following, once all parts have arrived.
  template <int kWidth>
  __device__ __forceinline__ Floats<kWidth> sum(u32 first) const {
    return sum_parts<kRanks, kWidth>(inbox + first, kShare);
  }
};
