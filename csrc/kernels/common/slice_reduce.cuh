// Sum over the slices of K that different clusters work on, through global memory: each slice adds a share of the tile.
// All CTAs of the grid must run at the same time, which only a cooperative launch promises.
// There are no counters, fences or barriers: every word of the workspace says itself whether its value has come. Before
// a launch, and after it, all of them are kAbsent. A thread leaves its sums for the threads that hold the same places
// in the other slices, and reads what those have left for it until nothing is absent; each word has one writer and one
// reader, who makes it kAbsent again. One trip through L2, where a count and what it covers take three. The idea is
// that of NCCL's low-latency protocol, with a value that no sum has in place of a flag.
#pragma once
#include "common/ptx.cuh"

constexpr u32 kAbsent = 0xFFFFFFFF;  // as a float a NaN

// Looked for at once the parts have not come, and all CTAs looking keeps what they look for from coming. After about
// what a part takes through L2: 256x128x16384 5.2 -> 4.7 us launched dependent, 1 to 2% in the mean of 28 problems.
__device__ __forceinline__ void let_parts_come() { asm volatile("nanosleep.u32 350;" ::: "memory"); }

#define kNothing (Vec4{kAbsent, kAbsent, kAbsent, kAbsent})

// A sum as it is left: a NaN that looks like kAbsent becomes another NaN.
__device__ __forceinline__ u32 present(float v) { return min(__float_as_uint(v), kAbsent - 1); }

__device__ __forceinline__ void store_part(u32* part, Vec4 v) {
  asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(part), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
               : "memory");
}

__device__ __forceinline__ bool absent(Vec4 v) { return max(max(v.x, v.y), max(v.z, v.w)) == kAbsent; }

// A strong load, from L2 and never from an older line of L1, where `wanted`; else `v` stays.
__device__ __forceinline__ void load_part(Vec4& v, const u32* part, bool wanted) {
  asm volatile(
      "{ .reg .pred wanted;\n"
      "setp.ne.u32 wanted, %5, 0;\n"
      "@wanted ld.relaxed.gpu.global.v4.u32 {%0,%1,%2,%3}, [%4]; }"
      : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)
      : "l"(part), "r"((u32)wanted)
      : "memory");
}

// The accumulators of one warpgroup, m64 x kColumns. A part is stored as the threads hold it, 16 bytes of each beside
// those of its neighbours. Each slice adds kColumns / kAcross columns. With kAcross < kSlices that is done by every
// kTurns-th warp only, for its own 16 rows. `kLoads`: about how many loads of 16 bytes a thread has registers for.
template <int kColumns, int kSlices, int kAcross, int kLoads>
struct SliceShare {
  static constexpr int kTurns = kSlices / kAcross;
  static constexpr int kShare = kColumns / kAcross;  // columns that a slice adds
  static constexpr int kWords = 64 * kColumns;       // of a part
  static constexpr int kUnits = kShare / 8;          // of 16 bytes a thread
  static constexpr int kPitch = 128 * 4;             // words from unit to unit
  static constexpr int kReads = kSlices - 1;
  static constexpr int kBatch = min_of(kUnits, kLoads > kReads ? kLoads / kReads : 1);
  static_assert(kTurns * kAcross == kSlices && 4 % kTurns == 0 && kUnits * 8 * kAcross == kColumns, "equal shares");

  // True in the warps that have a share: `share` is the sum of the columns from slice % kAcross * kShare on. It begins
  // with the slice itself and goes round: in the same order whoever comes when. `parts` is slice 0's, that of slice s
  // lies s * stride words behind it; all of them are fewer than 2^32 words, for all of their CTAs are on the device.
  __device__ static __forceinline__ bool sum(const float (&own)[kColumns / 2], float (&share)[kShare / 2], u32* parts,
                                             u32 stride, int slice) {
    const int thread = threadIdx.x % 128;
    const int turn = warp_uniform(thread / 32) % kTurns;
    const int mine = slice - turn * kAcross;
    parts += thread * 4;
    leave(own, parts + slice * stride, mine);
    if (slice / kAcross != turn) return false;
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) {
      const int to = i % (kShare / 2);
      share[to] = i / (kShare / 2) == mine || i == to ? own[i] : share[to];
    }
    let_parts_come();
    u32* from[kReads];
    u32 at = slice * stride;
#pragma unroll
    for (int s = 0; s < kReads; ++s) {
      at = at + stride < kSlices * stride ? at + stride : 0;
      from[s] = parts + (at + mine * kUnits * kPitch);
    }
#pragma unroll
    for (int first = 0; first < kUnits; first += kBatch) add(share, from, first);
    return true;
  }

 private:
  // Stores all columns but those of share `mine`, which may be no share of this warp's.
  __device__ static __forceinline__ void leave(const float (&own)[kColumns / 2], u32* part, int mine) {
#pragma unroll
    for (int unit = 0; unit < kAcross * kUnits; ++unit) {
      const float* v = &own[unit * 4];
      if (unit / kUnits != mine) {
        store_part(part + unit * kPitch, {present(v[0]), present(v[1]), present(v[2]), present(v[3])});
      }
    }
  }

  // Adds units `first` and following of all other slices, once they are there. What has come is not read again: reads
  // would take bandwidth from the CTAs that are waited for.
  __device__ static __forceinline__ void add(float (&share)[kShare / 2], u32* const (&from)[kReads], int first) {
    const int units = min_of(kBatch, kUnits - first);
    Vec4 part[kBatch][kReads];
#pragma unroll
    for (int i = 0; i < units; ++i) {
#pragma unroll
      for (int s = 0; s < kReads; ++s) part[i][s] = kNothing;
    }
    bool waiting;
    do {
#pragma unroll
      for (int i = 0; i < units; ++i) {
#pragma unroll
        for (int s = 0; s < kReads; ++s) load_part(part[i][s], from[s] + (first + i) * kPitch, absent(part[i][s]));
      }
      waiting = false;
#pragma unroll
      for (int i = 0; i < units; ++i) {
#pragma unroll
        for (int s = 0; s < kReads; ++s) waiting |= absent(part[i][s]);
      }
    } while (waiting);
#pragma unroll
    for (int i = 0; i < units; ++i) {
      float* v = &share[(first + i) * 4];
#pragma unroll
      for (int s = 0; s < kReads; ++s) {
        v[0] += __uint_as_float(part[i][s].x), v[1] += __uint_as_float(part[i][s].y);
        v[2] += __uint_as_float(part[i][s].z), v[3] += __uint_as_float(part[i][s].w);
        store_part(from[s] + (first + i) * kPitch, kNothing);
      }
    }
  }
};
