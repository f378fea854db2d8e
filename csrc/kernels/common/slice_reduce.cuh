// Sum over the slices of K that different clusters work on, through global memory, in one of two ways.
// SliceReduce: nobody waits for anybody. Every warpgroup leaves its part and counts itself; whoever counts last adds
// the parts in the order of the slices, so that the result does not depend on who was last.
// SliceShare: all wait for each other, and each adds a share of the tile. For that all CTAs of the grid must run at the
// same time, which only a cooperative launch promises.
#pragma once
#include "common/ptx.cuh"

// Adds one to a counter that starts again at 0 after `last`; returns the count before. What reached this thread through
// barriers is visible to whoever counts later, and what was counted before is visible to this thread and, through
// barriers, to its neighbours.
__device__ __forceinline__ u32 count_up(u32* counter, u32 last) {
  u32 before;
  asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;" : "=r"(before) : "l"(counter), "r"(last) : "memory");
  return before;
}

// Waits, after count_up(counter, 2 * parties - 1), until `parties` threads have counted: what each of them had seen is
// visible to all after it. The counter is 0 before the first comes and after the last has gone: it opens at `parties`,
// where every thread that has seen it open counts once more and the last of them makes it 0. Nobody can miss it: it
// closes only after all have seen it open.
__device__ __forceinline__ void await_all(u32* counter, u32 before, u32 parties) {
  for (u32 count = before + 1; count < parties;) {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(count) : "l"(counter) : "memory");
  }
  asm volatile("red.relaxed.gpu.global.inc.u32 [%0], %1;" ::"l"(counter), "r"(2 * parties - 1) : "memory");
}

// named_sync that also tells all threads whether any of them says yes.
__device__ __forceinline__ bool named_any(int id, int threads, bool yes) {
  u32 any;
  asm volatile(
      "{ .reg .pred one, all;\n"
      "setp.ne.u32 one, %3, 0;\n"
      "bar.red.or.pred all, %1, %2, one;\n"
      "selp.u32 %0, 1, 0, all; }"
      : "=r"(any)
      : "r"(id), "r"(threads), "r"((u32)yes)
      : "memory");
  return any != 0;
}

// A strong load: never from lines of L1 that are older than the count.
__device__ __forceinline__ void load_part(float (&v)[4], const float* part) {
  asm volatile("ld.relaxed.gpu.global.v4.f32 {%0,%1,%2,%3}, [%4];"
               : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3])
               : "l"(part)
               : "memory");
}

__device__ __forceinline__ void store_part(float* part, const float* v) {
  store_global16<false>(part,
                        {__float_as_uint(v[0]), __float_as_uint(v[1]), __float_as_uint(v[2]), __float_as_uint(v[3])});
}

// The accumulators of one warpgroup, m64 x kColumns. A part is stored as the threads hold it, 16 bytes of each beside
// those of its neighbours. `kLoads`: about how many loads of 16 bytes a thread has registers for.
template <int kColumns, int kSlices, int kLoads>
struct SliceReduce {
  static constexpr int kFloats = 64 * kColumns;  // of a part
  static constexpr int kUnits = kColumns / 8;    // of 16 bytes a thread
  static constexpr int kPitch = 128 * 4;         // floats from unit to unit
  // Two parts have the same sum in either order, so the own one stays in registers. Of more, all are read back: to put
  // the own one in its place takes more instructions than a load.
  static constexpr bool kKeep = kSlices == 2;
  static constexpr int kReads = kKeep ? 1 : kSlices;
  static constexpr int kBatch = min_of(kUnits, kLoads > kReads ? kLoads / kReads : 1);

  // True in all threads of the warpgroup whose `share` now is the sum; false where another will do it. `parts` is slice
  // 0's, that of slice s lies s * stride floats behind it. `counter` is 0 before the first and after the last.
  __device__ static __forceinline__ bool sum(float (&share)[kColumns / 2], float* parts, i64 stride, int slice,
                                             u32* counter, int barrier_id) {
    const int thread = threadIdx.x % 128;
    parts += thread * 4;
    float* own = parts + slice * stride;
#pragma unroll
    for (int unit = 0; unit < kUnits; ++unit) store_part(own + unit * kPitch, &share[unit * 4]);
    named_sync(barrier_id, 128);
    const bool last = thread == 0 && count_up(counter, kSlices - 1) == kSlices - 1;
    if (!named_any(barrier_id, 128, last)) return false;
    if (kKeep) parts += (1 - slice) * stride;
#pragma unroll
    for (int first = 0; first < kUnits; first += kBatch) {
      // Nothing to agree on, but ptxas moves no load across it: it would start more than there are registers for.
      if (first > 0) __syncwarp();
#pragma unroll
      for (int unit = first; unit < first + kBatch && unit < kUnits; ++unit) {
        float part[kReads][4];
#pragma unroll
        for (int s = 0; s < kReads; ++s) load_part(part[s], parts + s * stride + unit * kPitch);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          float total = kKeep ? share[unit * 4 + i] + part[0][i] : part[0][i];
#pragma unroll
          for (int s = 1; s < kReads; ++s) total += part[s][i];
          share[unit * 4 + i] = total;
        }
      }
    }
    return true;
  }
};

// The same parts in the same places, but each slice adds kColumns / kAcross columns of them. With kAcross < kSlices
// that is done by every kTurns-th warp only, for its own 16 rows. What a slice adds itself it keeps in registers.
template <int kColumns, int kSlices, int kAcross, int kLoads>
struct SliceShare {
  static constexpr int kTurns = kSlices / kAcross;
  static constexpr int kShare = kColumns / kAcross;  // columns that a slice adds
  static constexpr int kFloats = 64 * kColumns;      // of a part
  static constexpr int kUnits = kShare / 8;          // of 16 bytes a thread
  static constexpr int kPitch = 128 * 4;             // floats from unit to unit
  static constexpr int kReads = kSlices - 1;
  static constexpr int kBatch = min_of(kUnits, kLoads > kReads ? kLoads / kReads : 1);
  static_assert(kTurns * kAcross == kSlices && 4 % kTurns == 0 && kUnits * 8 * kAcross == kColumns, "equal shares");

  // True in the warps that have a share: `share` is the sum of the columns from slice % kAcross * kShare on. It begins
  // with the slice itself and goes round: in the same order whoever comes when. Arguments as for SliceReduce; the parts
  // of all slices are fewer than 2^32 floats, for all of their CTAs are on the device.
  __device__ static __forceinline__ bool sum(const float (&own)[kColumns / 2], float (&share)[kShare / 2], float* parts,
                                             u32 stride, int slice, u32* counter, int barrier_id) {
    const int thread = threadIdx.x % 128;
    const int turn = warp_uniform(thread / 32) % kTurns;
    const int mine = slice - turn * kAcross;
    parts += thread * 4;
    leave(own, parts + slice * stride, mine);
    named_sync(barrier_id, 128);
    u32 before = 0;
    if (thread == 0) before = count_up(counter, 2 * kSlices - 1);
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) {
      const int to = i % (kShare / 2);
      share[to] = i / (kShare / 2) == mine || i == to ? own[i] : share[to];
    }
    // Where the others' are, while the count is under way; without the empty asm that is computed after the wait.
    asm volatile("" : "+l"(parts));
    u32 from[kReads];
    u32 at = slice * stride;
#pragma unroll
    for (int s = 0; s < kReads; ++s) {
      at = at + stride < kSlices * stride ? at + stride : 0;
      from[s] = at + slice % kAcross * kUnits * kPitch;
      asm volatile("" : "+r"(from[s]));
    }
    if (thread == 0) await_all(counter, before, kSlices);
    named_sync(barrier_id, 128);
    if (slice / kAcross != turn) return false;
#pragma unroll
    for (int first = 0; first < kUnits; first += kBatch) {
      if (first > 0) __syncwarp();  // as above
#pragma unroll
      for (int unit = first; unit < first + kBatch && unit < kUnits; ++unit) {
        float part[kReads][4];
#pragma unroll
        for (int s = 0; s < kReads; ++s) load_part(part[s], parts + from[s] + unit * kPitch);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
#pragma unroll
          for (int s = 0; s < kReads; ++s) share[unit * 4 + i] += part[s][i];
        }
      }
    }
    return true;
  }

 private:
  // Stores all columns but those of share `mine`, which may be no share of this warp's.
  __device__ static __forceinline__ void leave(const float (&own)[kColumns / 2], float* part, int mine) {
#pragma unroll
    for (int unit = 0; unit < kAcross * kUnits; ++unit) {
      if (unit / kUnits != mine) store_part(part + unit * kPitch, &own[unit * 4]);
    }
  }
};
