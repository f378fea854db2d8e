// Operands of a warp's mma straight from global memory, 32 of K (a chunk) at a time. Thread q of a quad owns k = 8q to
// 8q + 7 of a chunk, for A and B alike, so one 16-byte load of a K-major row feeds two m16n8k16 steps.
// Pointers count bytes and products are 32 x 32 bits, added to 64: one instruction a row. kWhole: every row exists,
// else rows beyond the last repeat it (they only reach outputs that are never stored). kShared: another warp of the
// CTA reads the same rows, so L1 keeps them.
#pragma once
#include "common/ptx.cuh"

// `base` + `count` rows of `stride` bytes, in one instruction: left to itself the compiler makes a chain of additions,
// and the last row of eight leaves a hundred clocks after the first.
__device__ __forceinline__ const u8* rows_further(const u8* base, u32 stride, u32 count) {
  u64 distance;
  asm("mul.wide.u32 %0, %1, %2;" : "=l"(distance) : "r"(stride), "r"(count));
  return base + distance;
}

// Plain loads: see load_global16.
template <int kWords, bool kShared>
__device__ __forceinline__ void load_words(u32 (&out)[kWords], const u8* p) {
  if constexpr (kWords == 1) {
    asm volatile("ld.global.u32 %0, [%1];" : "=r"(out[0]) : "l"(p) : "memory");
  } else if constexpr (kWords == 2) {
    asm volatile("ld.global.v2.u32 {%0,%1}, [%2];" : "=r"(out[0]), "=r"(out[1]) : "l"(p) : "memory");
  } else if constexpr (kShared) {
    asm volatile("ld.global.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "l"(p)
                 : "memory");
  } else {
    const Vec4 v = load_global16(p);
    out[0] = v.x, out[1] = v.y, out[2] = v.z, out[3] = v.w;
  }
}

// kCount rows, kSpacing apart, of a matrix whose rows run along K.
template <int kCount, int kSpacing, bool kWhole, bool kShared>
struct KMajor {
  const u8* p[kCount];

  // From row `first` and column `k`; `stride` elements a row, `rows` in all.
  __device__ __forceinline__ KMajor(const u16* matrix, int stride, int rows, int first, int k) {
    const u8* column = reinterpret_cast<const u8*>(matrix + k);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int row = first + i * kSpacing;
      p[i] = rows_further(column, 2u * stride, kWhole ? row : min_of(row, rows - 1));
    }
  }
  __device__ __forceinline__ void advance(int k) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) p[i] += k * 2;
  }

  struct Fragment {
    u32 words[kCount][4];

    __device__ __forceinline__ void load(const KMajor& from, int k, bool inside) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        if (inside) {
          load_words<4, kShared>(words[i], from.p[i] + k * 2);
        } else {
          words[i][0] = words[i][1] = words[i][2] = words[i][3] = 0;
        }
      }
    }
    // Elements 2i and 2i + 1 of the thread's eight of a row.
    __device__ __forceinline__ u32 pair(int row, int i) const { return words[row][i]; }
  };
};

// kColumns contiguous columns of the eight rows of K that a thread owns, of a matrix whose rows run along N.
template <int kColumns, bool kWhole, bool kShared>
struct NMajor {
  const u8* column;
  u32 stride;
  int k;

  __device__ __forceinline__ NMajor(const u16* matrix, int stride, int columns, int first, int k)
      : stride(2u * stride), k(k) {
    column = reinterpret_cast<const u8*>(matrix + (kWhole ? first : min_of(first, columns - kColumns)));
  }
  __device__ __forceinline__ void advance(int further) { k += further; }

  struct Fragment {
    u32 rows[8][kColumns / 2];

    __device__ __forceinline__ void load(const NMajor& from, int further, bool inside) {
#pragma unroll
      for (int r = 0; r < 8; ++r) {
        if (inside) {
          load_words<kColumns / 2, kShared>(rows[r], rows_further(from.column, from.stride, from.k + further + r));
        } else {
#pragma unroll
          for (int i = 0; i < kColumns / 2; ++i) rows[r][i] = 0;
        }
      }
    }
    // Rows 2i and 2i + 1 of a column, packed.
    __device__ __forceinline__ u32 pair(int column, int i) const {
      return __byte_perm(rows[2 * i][column / 2], rows[2 * i + 1][column / 2], column % 2 ? 0x7632 : 0x5410);
    }
  };
};
