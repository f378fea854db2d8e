// Sum over the slices of K that different clusters work on, through global memory; nobody waits for anybody. Every
// warpgroup leaves its part and counts itself; whoever counts last adds the parts in the order of the slices, so that
// the result does not depend on who was last.
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
    for (int unit = 0; unit < kUnits; ++unit) {
      const float* v = &share[unit * 4];
      store_global16<false>(own + unit * kPitch, {__float_as_uint(v[0]), __float_as_uint(v[1]), __float_as_uint(v[2]),
                                                  __float_as_uint(v[3])});
    }
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
