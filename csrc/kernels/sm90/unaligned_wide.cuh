// Rows that begin anywhere, by aligned accesses of 16 bytes: in place of the narrow copies and stores of sm90_unaligned
// where HGP_WIDE is set. Part of sm90/unaligned.cuh.
#pragma once

__device__ __forceinline__ void copies_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// All groups of this thread but the last `kLater` have landed.
template <int kLater>
__device__ __forceinline__ void copies_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLater) : "memory");
}

// 8 elements of two units that are neighbours, from the `skew`th on.
__device__ __forceinline__ Vec4 shifted(const Vec4& first, const Vec4& second, int skew) {
  const bool by4 = skew & 4, by2 = skew & 2;
  const u32 all[8] = {first.x, first.y, first.z, first.w, second.x, second.y, second.z, second.w};
  u32 four[6], two[5];
#pragma unroll
  for (int i = 0; i < 6; ++i) four[i] = by4 ? all[i + 2] : all[i];
#pragma unroll
  for (int i = 0; i < 5; ++i) two[i] = by2 ? four[i + 1] : four[i];
  const int bits = skew % 2 * 16;
  u32 v[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) v[i] = (u32)(((u64)two[i + 1] << 32 | two[i]) >> bits);
  return {v[0], v[1], v[2], v[3]};
}

// The first `count` elements, zeros behind them.
__device__ __forceinline__ Vec4 first_of(const Vec4& all, int count) {
  const u32 v[4] = {all.x, all.y, all.z, all.w};
  u32 kept[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) kept[i] = count > 2 * i + 1 ? v[i] : count > 2 * i ? v[i] & 0xffff : 0;
  return {kept[0], kept[1], kept[2], kept[3]};
}

// One operand of a tile, by all producers: the slab of 64 of K whose first k is `first`. Lines are as in UnalignedCopy.
// A line begins `skew` elements behind a multiple of 16 bytes. Each producer warp has every eighth line, so that the
// skew is one and the same for all that a warp ever copies. The aligned units that hold a line come to the line's own
// place, the last of them to the slab's `tails`; once they have landed, the warp shifts them there to where a tensor
// map would have put them. Zeros follow the last k, and anything the last row. Units that reach over an end of the
// operand are read by elements.
template <int kRows, bool kMnMajor>
struct WideCopy {
  using Box = Operand<kRows, kMnMajor>;
  static constexpr int kLineBytes = kMnMajor ? Box::kSwizzle : 128;
  static constexpr int kUnits = kLineBytes / 16;                // of a line
  static constexpr int kStep = 8 * 32 / kUnits;                 // lines that all warps copy at once
  static constexpr int kStepBytes = kStep * kLineBytes;         // of shared memory
  static constexpr int kSteps = Box::kSlabBytes / kStepBytes;   // of a slab
  static constexpr int kAtomSteps = kMnMajor ? 64 / kStep : 1;  // steps from an atom to the next
  static constexpr int kBits = kLineBytes == 128 ? 7 : 3;       // of the swizzle
  static constexpr int kLines = Box::kSlabBytes / kLineBytes;   // of all atoms
  static constexpr int kTailBytes = kLines * 16;
  static constexpr int kAtOnce = kSteps <= kBatch ? kSteps : kSteps % kBatch == 0 ? kBatch : kSteps / 2;
  static_assert(kSteps * kStepBytes == Box::kSlabBytes && kLines <= 8 * 32, "whole steps, a lane for each tail");
  static_assert(kSteps % kAtOnce == 0, "whole batches");

  u32 to, follows, pace;  // this thread's first unit and the one behind it, from the slab's start on; steps of the latter
  u32 tail_to;
  const u16 *from, *tail_from;  // what comes there, at k = 0
  const u16* matrix;
  i64 size, pitch;     // elements of the operand; from one line of a step to that of the next
  int ld, k, first_row, rows;  // rows: of the tile
  int line, unit, skew;      // of the first unit; elements of its line before the unit
  int tail_line;             // -1: this lane copies no tail
  u32 wanted;                // a bit for each step whose row there is

  // `tails`: from the slab's start on.
  __device__ __forceinline__ WideCopy(const u16* matrix, int ld, int rows, int k, int first, int thread, u32 tails)
      : matrix(matrix), pitch((i64)kStep * ld), ld(ld), k(k), first_row(first) {
    const int warp = warp_uniform(thread / 32), lane = thread % 32;
    line = warp + lane / kUnits * 8;
    skew = warp_uniform((int)((u64)(matrix + (kMnMajor ? (i64)warp * ld + first : (i64)(first + warp) * ld)) >> 1 & 7));
    const u32 place = line * kLineBytes + lane % kUnits * 16;
    const u32 mix = (place >> 7 & kBits) << 4;
    const bool last = lane % kUnits == kUnits - 1;
    to = place ^ mix;
    follows = last ? tails + line * 16 : (place + 16) ^ mix;
    pace = last ? kStep * 16 : kStepBytes;
    unit = lane % kUnits * 8 - skew;
    from = matrix + unit + (kMnMajor ? (i64)line * ld + first : (i64)(first + line) * ld);
    this->rows = min_of(kRows, rows - first);
    wanted = 0;
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      const bool is = kMnMajor ? i / kAtomSteps * Box::kAtom + unit < this->rows : i * kStep + line < this->rows;
      wanted |= (u32)is << i;
    }
    const int tail = warp + lane * 8, atom = kMnMajor ? tail / 64 : 0;
    tail_to = tails + tail * 16;
    tail_line = kMnMajor ? tail % 64 : tail;
    tail_from = matrix + kLineBytes / 2 - skew +
                (kMnMajor ? (i64)tail_line * ld + first + atom * Box::kAtom : (i64)(first + tail_line) * ld);
    const bool has_tail = kMnMajor ? atom * Box::kAtom + kLineBytes / 2 - skew < this->rows : tail < this->rows;
    if (lane >= kLines / 8 || skew == 0 || !has_tail) tail_line = -1;
    size = (i64)((kMnMajor ? k : rows) - 1) * ld + (kMnMajor ? rows : k);
  }

  // Whether all units with something of the slab are inside the operand: they reach 7 elements over what is wanted.
  __device__ __forceinline__ bool inside(int first) const {
    const int end = min_of(first + 64, k), end_row = first_row + rows;
    const i64 low = kMnMajor ? (i64)first * ld + first_row : (i64)first_row * ld + first;
    const i64 high = kMnMajor ? (i64)(end - 1) * ld + end_row : (i64)(end_row - 1) * ld + end;
    return (low >= 7 || ((u64)matrix & 15) == 0) && high + 7 <= size;
  }

  // A unit that may reach over an end of the operand; all its elements at once, for one waits as long as eight.
  __device__ __forceinline__ void copy_end(u32 at, const u16* p) const {
    const i64 place = p - matrix;
    if (place >= 0 && place + 8 <= size) {
      copy_some<16>(at, p, 16);
      return;
    }
    u32 v[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = load_element(p + i, (u64)(place + i) < (u64)size);
    store_shared16(at, {v[0] | v[1] << 16, v[2] | v[3] << 16, v[4] | v[5] << 16, v[6] | v[7] << 16});
  }

  // All aligned units of the slab, on their way.
  __device__ __forceinline__ void copy(u8* slab, int first) const {
    const u32 at = smem_address(slab);
    const i64 further = kMnMajor ? (i64)first * ld : first;
    const u16* p = from + further;
    const bool quick = inside(first) && (!kMnMajor || first + 64 <= k);
    const u32 now = kMnMajor || first + unit < k ? wanted : 0;
    const bool tail = tail_line >= 0 && (kMnMajor ? first + tail_line < k : first + 64 - skew < k);
    if (quick) {
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
        if (kMnMajor && i % kAtomSteps == 0) {
          p = from + further + i / kAtomSteps * Box::kAtom;
        } else if (i > 0) {
          p += pitch;
        }
        if (now >> i & 1) copy_some<16>(at + to + i * kStepBytes, p, 16);
      }
      if (tail) copy_some<16>(at + tail_to, tail_from + further, 16);
      return;
    }
#pragma unroll 1
    for (int i = 0; i < kSteps; ++i) {
      if (kMnMajor && i % kAtomSteps == 0) {
        p = from + further + i / kAtomSteps * Box::kAtom;
      } else if (i > 0) {
        p += pitch;
      }
      const bool is = now >> i & 1 && (!kMnMajor || first + line + i % kAtomSteps * kStep < k);
      if (is) copy_end(at + to + i * kStepBytes, p);
    }
    if (tail) copy_end(at + tail_to, tail_from + further);
  }

  // To their places, once they have landed: by whole warps, each its own lines.
  __device__ __forceinline__ void shift(u8* slab, int first) const {
    const u32 at = smem_address(slab);
    if (first + 64 > k) {
      // Zeros behind the last k: what came there is the next row, or nothing.
#pragma unroll 1
      for (int i = 0; i < kSteps; ++i) {
        const int count =
            kMnMajor ? (first + line + i % kAtomSteps * kStep < k ? 8 : 0) : k - first - unit - skew;
        Vec4 v = load_shared16(at + to + i * kStepBytes);
        v = first_of(shifted(v, load_shared16(at + follows + i * pace), skew), count);
        __syncwarp();
        store_shared16(at + to + i * kStepBytes, v);
      }
      return;
    }
    shift_by_bits<0, 4>(at);
  }

 private:
  // By a skew of which the bits above `kBit` are kKnown: branches, for a binary has no table of jumps.
  template <int kKnown, int kBit>
  __device__ __forceinline__ void shift_by_bits(u32 at) const {
    if constexpr (kBit > 0) {
      if (skew & kBit) {
        shift_by_bits<kKnown + kBit, kBit / 2>(at);
      } else {
        shift_by_bits<kKnown, kBit / 2>(at);
      }
    } else if constexpr (kKnown > 0) {
      shift_by<kKnown>(at);
    }
  }

  template <int kSkew>
  __device__ __forceinline__ void shift_by(u32 at) const {
#pragma unroll
    for (int i = 0; i < kSteps; i += kAtOnce) {
      if (!kMnMajor && i * kStep >= rows) break;
      Vec4 own[kAtOnce], next[kAtOnce];
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        own[j] = load_shared16(at + to + (i + j) * kStepBytes);
        next[j] = load_shared16(at + follows + (i + j) * pace);
      }
      __syncwarp();
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        store_shared16(at + to + (i + j) * kStepBytes, shifted(own[j], next[j], kSkew));
      }
    }
  }
};

// An operand whose rows all begin at multiples of 16 bytes comes as it is.
template <int kRows, bool kMnMajor>
struct StraightCopy : UnalignedCopy<kRows, kMnMajor, 16> {
  static constexpr int kTailBytes = 0;
  __device__ __forceinline__ StraightCopy(const u16* matrix, int ld, int rows, int k, int first, int thread, u32)
      : UnalignedCopy<kRows, kMnMajor, 16>(matrix, ld, rows, k, first, thread) {}
  __device__ __forceinline__ void copy(u8* slab, int first) const { this->slab(slab, first); }
  __device__ __forceinline__ void shift(u8*, int) const {}
};
template <bool kWide, int kRows, bool kMnMajor>
struct Pick {
  using Copy = WideCopy<kRows, kMnMajor>;
};
template <int kRows, bool kMnMajor>
struct Pick<false, kRows, kMnMajor> {
  using Copy = StraightCopy<kRows, kMnMajor>;
};
using CopyA = Pick<HGP_A_BYTES != 16, kTileM, HGP_A_MN_MAJOR>::Copy;
using CopyB = Pick<HGP_B_BYTES != 16, kTileN, HGP_B_MN_MAJOR>::Copy;
static_assert(CopyA::kTailBytes == kTailsA && CopyB::kTailBytes == kTailsB, "a stage has room for the tails");

// Load: all producer threads. Slabs are on their way for all stages but two: one is shifted, and one multiplied.
__device__ __forceinline__ void produce(u8* ring, Barriers& barriers, const CopyA& a, const CopyB& b, Range range) {
  constexpr int kAhead = kStages - 2;
  Cursor coming, landed;
#pragma unroll 1
  for (int i = 0; i < range.count() + kAhead; ++i) {
    if (i < range.count()) {
      u8* const stage = ring + coming.stage * kStageBytes;
      if (i >= kStages) barrier_wait(&barriers.empty[coming.stage], coming.parity ^ 1);
      a.copy(stage, (range.begin + i) * kTileK);
      b.copy(stage + OperandA::kSlabBytes, (range.begin + i) * kTileK);
      coming.advance();
    }
    copies_commit();  // at the end a group of none, so that each counts
    if (i < kAhead) continue;
    copies_wait<kAhead>();
    __syncwarp();
    u8* const stage = ring + landed.stage * kStageBytes;
    a.shift(stage, (range.begin + i - kAhead) * kTileK);
    b.shift(stage + OperandA::kSlabBytes, (range.begin + i - kAhead) * kTileK);
    __syncwarp();
    release_by_warp(&barriers.full[landed.stage]);
    landed.advance();
  }
}
