// One operand of a tile, 64 of K at a time (a slab): how tensor maps deliver it to shared memory,
// and how wgmma reads it there. Twin of generator/families/operand.py, which declares the maps.
#pragma once
#include "common/wgmma.cuh"

// Where the first slab starts in dynamic shared memory. A record's smem_bytes has 1024 bytes more than the kernel
// needs, for the way there. A macro, for a function makes other cubins of sm90_writebound.
#define HGP_FIRST_SLAB(smem) ((smem) + (1024 - (smem_address(smem) & 1023)) % 1024)

// Whether B comes with its rows in an order of their own, and of how many that is (row_group in the manifest). Macros,
// and Operand has a bool, for the names of constants are part of a cubin.
#ifdef HGP_GATE
#define HGP_GROUPED_B 1
#define HGP_ROW_GROUP 16
#else
#define HGP_ROW_GROUP 32
#if HGP_EPILOGUE_GROUPED
#define HGP_GROUPED_B 1
#else
#define HGP_GROUPED_B 0
#endif
#endif

// `kRows` of M or N. K-major (stored [rows, K]): one box of rows x 128 bytes. MN-major (stored [K,
// rows]): boxes of 64 k x 64 rows, or x 32 where the rows are no multiple of 64, one behind the
// other (a single wide box would be no swizzle pattern that wgmma knows). Slabs start at multiples
// of 1024 bytes.
template <int kRows, bool kMnMajor, bool kGrouped = false>
struct Operand {
  static constexpr bool kTransposed = kMnMajor;
  static constexpr int kAtom = kMnMajor && kRows % 64 != 0 ? 32 : 64;
  static constexpr int kSwizzle = kAtom * kElementBytes;
  static constexpr int kSlabBytes = kRows * 64 * kElementBytes;
  static constexpr u32 kStep = (kMnMajor ? 16 * kSwizzle : 32) >> 4;  // 16 of K, in descriptor units of 16 bytes

  // Of the slab at `slab`, 64 rows further for each `block` (rows then a multiple of 64).
  __device__ static __forceinline__ Descriptor descriptor(const u8* slab, int block = 0) {
    constexpr u32 kLead = kMnMajor ? 64 * kSwizzle : 16;
    return {slab + block * 8192, kLead, 8 * kSwizzle, kSwizzle};
  }

  // Slice `slice` of `kSlices` of the slab whose first element is (`row`, `k`); `mask` as for
  // load_box.
  template <int kSlices = 1>
  __device__ static __forceinline__ void load(u8* slab, const TensorMap* map, u64* bar, int row, int k, int slice = 0,
                                              u16 mask = 0) {
    if constexpr (kMnMajor) {
      const int first = slice * (64 / kSlices);
#pragma unroll
      for (int atom = 0; atom < kRows / kAtom; ++atom) {
        load_box(slab + (atom * 64 + first) * kSwizzle, map, bar, row + atom * kAtom, k + first, mask);
      }
    } else {
      const int first = slice * (kRows / kSlices);
      if constexpr (kGrouped) {
        load_box_grouped(slab + first * 128, map, bar, k, (row + first) / HGP_ROW_GROUP, mask);
      } else {
        load_box(slab + first * 128, map, bar, k, row + first, mask);
      }
    }
  }
};
