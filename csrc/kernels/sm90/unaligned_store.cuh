// What a consumer of sm90_unaligned stores. Part of sm90/unaligned.cuh, read where the store stood: the order of
// declarations is part of a cubin.
#pragma once

// Where a CTA stores: C and what is added to the product.
struct Output {
  u16* c;
  int ldc, m, n;
#ifdef HGP_ACTIVATION
  const u16* addend;
#endif

  // Store: each thread, before the product is rounded. Element by element, for N may be odd.
  __device__ __forceinline__ void finish(float (&acc)[kShareN / 2], int row, int column) const {
#ifdef HGP_ACTIVATION
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kShareN / 2; ++i) {
      const int r = row + threadIdx.x / 32 % 4 * 16 + lane / 4 + i / 2 % 2 * 8;
      const int c = column + i / 4 * 8 + lane % 4 * 2 + i % 2;
      const u16* p = HGP_RESIDUAL ? addend + (i64)r * n + c : addend + c;
      acc[i] = finish_sum(acc[i], widen((u16)load_element(p, c < n && (!HGP_RESIDUAL || r < m))));
    }
#endif
  }

  // Store: each warp, its 16 rows of a block, kChunk columns at a time through its own `staging`.
  __device__ __forceinline__ void store(const float (&acc)[kShareN / 2], int row, int column, u32 staging) const {
    using Staged = StagedEpilogue<kShareN, false>;
    constexpr int kWidth = kBytesC / kElementBytes;
    constexpr int kUnits = Staged::kChunk / kWidth;  // of a staged row
    constexpr int kAtOnce = min_of(kUnits / 2, 8);   // more would hold more addresses than there are registers
    const int lane = threadIdx.x % 32;
    const int warp_row = row + threadIdx.x / 32 % 4 * 16;
#pragma unroll
    for (int first = 0; first < kShareN; first += Staged::kChunk) {
#pragma unroll
      for (int j = 0; j < Staged::kUnits; j += 2) {
        stage_blocks(Staged::address(staging, lane % 8 + lane / 8 % 2 * 8, j + lane / 16), &acc[(first / 8 + j) * 4]);
      }
      __syncwarp();
#if HGP_WIDE && HGP_C_BYTES < 16
      store_wide<Staged>(warp_row, column + first, staging);
#else
#pragma unroll kAtOnce
      for (int i = 0; i < kUnits / 2; ++i) {
        const int r = (i * 32 + lane) / kUnits;
        const int at = (i * 32 + lane) % kUnits * kWidth;
        const u32 staged = Staged::address(staging, r, at / 8) + at % 8 * kElementBytes;
        const int left = warp_row + r < m ? n - column - first - at : 0;
        store_unit<kBytesC>(c + (i64)(warp_row + r) * ldc + column + first + at, staged, left);
      }
#endif
      __syncwarp();
    }
  }

 private:
#if HGP_WIDE
  // Store: each warp, its 16 staged rows. Of a row's columns here the first `head`, up to a multiple of 16 bytes, and
  // 8 - head at the end go one by one, the others in aligned units.
  template <class Staged>
  __device__ __forceinline__ void store_wide(int row, int column, u32 staging) const {
    constexpr int kUnits = Staged::kUnits - 1;  // of a row that may be aligned
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < (16 * kUnits + 31) / 32; ++i) {
      const int r = (i * 32 + lane) / kUnits % 16, unit = (i * 32 + lane) % kUnits;
      u16* const line = c + (i64)(row + r) * ldc + column;
      const int head = -(int)((u64)line >> 1) & 7;
      const int at = head + unit * 8, left = row + r < m && i * 32 + lane < 16 * kUnits ? n - column - at : 0;
      const Vec4 v = shifted(load_shared16(Staged::address(staging, r, unit)),
                             load_shared16(Staged::address(staging, r, unit + 1)), head);
      store_if(left >= 8, line + at, v);
      if (left < 8) {
        const u32 some[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int e = 0; e < 7; ++e) store_if(e < left, line + at + e, (u16)(some[e / 2] >> e % 2 * 16));
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int r = i * 4 + lane / 8;
      u16* const line = c + (i64)(row + r) * ldc + column;
      const int head = -(int)((u64)line >> 1) & 7;
      const int at = lane % 8 + (lane % 8 < head ? 0 : kUnits * 8);
      const u16 v = load_shared2(Staged::address(staging, r, at / 8) + at % 8 * kElementBytes);
      store_if(row + r < m && column + at < n, line + at, v);
    }
  }
#endif
  // kBytes, or the `left` elements that the row still has.
  template <int kBytes>
  __device__ __forceinline__ static void store_unit(u16* p, u32 staged, int left) {
    constexpr int kWidth = kBytes / kElementBytes;
    if constexpr (kBytes == 2) {
      store_if(left > 0, p, load_shared2(staged));
    } else {
      u32 v[kBytes / 4];
      if constexpr (kBytes == 16) {
        const Vec4 all = load_shared16(staged);
        v[0] = all.x, v[1] = all.y, v[2] = all.z, v[3] = all.w;
      } else {
#pragma unroll
        for (int i = 0; i < kBytes / 4; ++i) v[i] = load_shared4(staged + i * 4);
      }
      if (left >= kWidth) {
        if constexpr (kBytes == 16) store_global16<false>(p, Vec4{v[0], v[1], v[2], v[3]});
        if constexpr (kBytes == 8) *reinterpret_cast<uint2*>(p) = make_uint2(v[0], v[1]);
        if constexpr (kBytes == 4) *reinterpret_cast<u32*>(p) = v[0];
      } else {
#pragma unroll
        for (int i = 0; i < kWidth - 1; ++i) store_if(i < left, p + i, (u16)(v[i / 2] >> i % 2 * 16));
      }
    }
  }
};
