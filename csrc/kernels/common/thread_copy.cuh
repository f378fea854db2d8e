// Operands brought to shared memory by the threads themselves, 16 bytes a cp.async, in the layout that tensor maps give
// them (common/operand.cuh). No map is fetched and no barrier is made: one wave of small tiles takes 0.08 to
// 0.13 us less than by TMA. Many slabs, or many CTAs an SM, are better copied in bulk.
// cp.async (PTX ISA 9.0, 9.7.9.25.3) goes past L1, as TMA does: it sees what grids have written that ended meanwhile.
#pragma once
#include "common/operand.cuh"

__device__ __forceinline__ void copy16(u32 to, const u16* from, bool inside) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(inside ? 16 : 0) : "memory");
}
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most `groups` of this thread's groups are on their way; a constant once the caller's loop is unrolled.
template <int kMost>
__device__ __forceinline__ void wait_for_copies(int groups) {
  if constexpr (kMost > 0) {
    if (groups < kMost) return wait_for_copies<kMost - 1>(groups);
  }
  asm volatile("cp.async.wait_group %0;" ::"n"(kMost) : "memory");
}

// The same for what all threads of the CTA have copied, or the first `kThreads` where others do not; wgmma may read it
// then.
template <int kMost, int kThreads = 0>
__device__ __forceinline__ void wait_for_copies_of_all(int groups) {
  wait_for_copies<kMost>(groups);
  proxy_fence();
  if constexpr (kThreads > 0) {
    named_sync(1, kThreads);
  } else {
    __syncthreads();
  }
}

// One operand of a tile; all kThreads threads take part. What lies outside the matrix, or beyond `k`, becomes zeros.
template <int kRows, bool kMnMajor, bool kGrouped, int kThreads>
struct ThreadCopy {
  using Box = Operand<kRows, kMnMajor, kGrouped>;
  static constexpr int kUnits = (kMnMajor ? Box::kAtom : 64) / 8;  // of 16 bytes, in a line of shared memory
  static constexpr int kStep = kThreads / kUnits;                  // lines that all threads copy at once
  static constexpr int kLines = kMnMajor ? 64 : kRows;             // of an atom: of K, or of the rows
  static constexpr int kAtoms = kMnMajor ? kRows / Box::kAtom : 1;
  // The swizzle then is the same for all lines of a thread, and 32 lines are grouped within one or two steps.
  static_assert(kStep % 8 == 0 && (!kGrouped || kStep == 16 || kStep == 32), "");

  u32 to;             // of this thread's first unit
  const u16* from;    // what comes there
  int ld, rows, k;    // of the matrix
  int line, row, at;  // of this thread: its first line, and the row and the k that its first unit begins with

  __device__ __forceinline__ ThreadCopy(const u8* slabs, const u16* matrix, int ld, int rows, int k, int first)
      : ld(ld), rows(rows), k(k) {
    const int unit = threadIdx.x % kUnits;
    line = threadIdx.x / kUnits;
    to = smem_address(slabs) + line * (kUnits * 16) + (unit ^ (line * kUnits / 8 % kUnits)) * 16;
    row = first + (kMnMajor ? unit * 8 : kGrouped ? line % 8 * 4 + line / 8 : line);
    // Of each 16 lines the last 8 are of the second half of the matrix.
    if (kGrouped && HGP_ROW_GROUP == 16) row = first / 2 + line / 16 * 8 + line % 8 + line / 8 % 2 * (rows / 2);
    at = kMnMajor ? line : unit * 8;
    from = matrix + (kMnMajor ? (i64)at * ld + row : (i64)row * ld + at);
  }

  // The slab whose first k is `first`, to `offset` bytes behind the first slab. Nobody waits.
  __device__ __forceinline__ void slab(int offset, int first) const {
#pragma unroll
    for (int atom = 0; atom < kAtoms; ++atom) {
#pragma unroll
      for (int step = 0; step < (kLines + kStep - 1) / kStep; ++step) {
        const int down = step * kStep;
        if (kLines % kStep != 0 && line + down >= kLines) continue;
        const u32 target = to + offset + (atom * 64 + down) * kUnits * 16;
        if constexpr (kMnMajor) {
          const int across = atom * Box::kAtom;
          const bool inside = at + first + down < k && row + across < rows;
          copy16(target, from + (i64)(first + down) * ld + across, inside);
        } else {
          // Line 8j + i of 32 holds row 4i + j, as a map with row_group 32 delivers it.
          const int below = !kGrouped ? down : HGP_ROW_GROUP == 16 ? down / 2 : down / 32 * 32 + down % 32 / 8;
          const bool inside = row + below < rows && at + first < k;
          copy16(target, from + (i64)below * ld + first, inside);
        }
      }
    }
  }
};
