// From the accumulators of one warpgroup (m64, kColumns) to 16-bit rows of C in global memory.
// Three ways, one interface; which is best depends on the tile and on whether C fits L2 (a family's `epilogue` gene).
#pragma once
#include "common/ptx.cuh"

// One m64 block of C for one warpgroup. `row` and `column` are its first element; rows >= m and columns >= n are
// clipped. N is a multiple of 8, so a 16-byte unit lies inside or outside.
struct OutputBlock {
  u16* c;
  int ldc, m, n, row, column;
};

// Staged through shared memory, one warp at a time: stmatrix into 16 rows of kChunk columns, then whole row pieces
// by 16-byte stores. `staging` is this warp's own 16 * kChunk * 2 bytes.
template <int kColumns, bool kStreaming>
struct StagedEpilogue {
  static constexpr int kChunk = kColumns % 64 == 0 ? 64 : kColumns % 32 == 0 ? 32 : 16;
  static constexpr int kUnits = kChunk / 8;  // 16-byte units in a staged row
  static constexpr int kWarpBytes = 16 * kChunk * kElementBytes;

  // XOR swizzle: the eight rows that one stmatrix phase writes fall into different banks.
  __device__ static __forceinline__ u32 address(u32 staging, int row, int unit) {
    const int mixed = unit ^ (row * kUnits / 8 % kUnits);
    return staging + (row * kUnits + mixed) * 16;
  }

  __device__ static __forceinline__ void store(const float (&acc)[kColumns / 2], const OutputBlock& out,
                                               u32 staging) {
    const int lane = threadIdx.x % 32;
    const int warp_row = out.row + (threadIdx.x / 32 % 4) * 16;
#pragma unroll
    for (int first = 0; first < kColumns; first += kChunk) {
#pragma unroll
      for (int j = 0; j < kUnits; j += 2) {
        const float* v = &acc[(first / 8 + j) * 4];
        const u32 at = address(staging, lane % 8 + (lane / 8 % 2) * 8, j + lane / 16);
        store_matrix4(at, pack2(v[0], v[1]), pack2(v[2], v[3]), pack2(v[4], v[5]), pack2(v[6], v[7]));
      }
      __syncwarp();
#pragma unroll
      for (int i = 0; i < kUnits / 2; ++i) {
        const int row = (i * 32 + lane) / kUnits;
        const int unit = (i * 32 + lane) % kUnits;
        const int column = out.column + first + unit * 8;
        const Vec4 v = load_shared16(address(staging, row, unit));
        if (warp_row + row < out.m && column < out.n) {
          store_global16<kStreaming>(out.c + (i64)(warp_row + row) * out.ldc + column, v);
        }
      }
      __syncwarp();
    }
  }
};

// Straight from registers: the tensor map of B has delivered its rows grouped by 32 (row_group), so that each thread
// holds 8 contiguous columns of C per 32 and no shared memory is needed. Layout nt, N a multiple of 32.
template <int kColumns, bool kStreaming>
struct GroupedEpilogue {
  static constexpr int kWarpBytes = 0;

  __device__ static __forceinline__ void store(const float (&acc)[kColumns / 2], const OutputBlock& out, u32) {
    const int lane = threadIdx.x % 32;
    const int row = out.row + (threadIdx.x / 32 % 4) * 16 + lane / 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (row + half * 8 >= out.m) continue;
      u16* line = out.c + (i64)(row + half * 8) * out.ldc + out.column + (lane % 4) * 8;
#pragma unroll
      for (int group = 0; group < kColumns / 32; ++group) {
        if (out.column + group * 32 >= out.n) continue;
        const float* v = &acc[group * 16 + half * 2];
        const Vec4 packed = {pack2(v[0], v[4]), pack2(v[8], v[12]), pack2(v[1], v[5]), pack2(v[9], v[13])};
        store_global16<kStreaming>(line + group * 32, packed);
      }
    }
  }
};

// Through the copy engine: 64 x 64 blocks, 128-byte swizzled, one bulk store each, staged kGroup at a time in a ring of
// two groups. Wider groups need fewer barriers and leave more stores in flight while the next tile is multiplied.
// `staging` is the warpgroup's own 4 * kWarpBytes; `barrier_id` its named barrier.
template <int kColumns, bool kStreaming = false, int kGroup = 1>
struct BulkEpilogue {
  static constexpr int kBlockBytes = 64 * 64 * kElementBytes;
  static constexpr int kWarpBytes = 2 * kGroup * kBlockBytes / 4;

  // `turn` counts the groups that this warpgroup has stored: the ring goes on from tile to tile. Starting every tile
  // at its first half overwrites a store in flight where a tile has an odd number of groups.
  __device__ static __forceinline__ void store(const float (&acc)[kColumns / 2], const TensorMap* map, int row,
                                               int column, u8* staging, int barrier_id, u32& turn) {
    const int lane = threadIdx.x % 32;
    const int staged_row = (threadIdx.x / 32 % 4) * 16 + lane % 8 + (lane / 8 % 2) * 8;
    const bool issuer = threadIdx.x % 128 == 0;
#pragma unroll
    for (int first = 0; first < kColumns; first += 64 * kGroup) {
      u8* group = staging + (turn++ % 2) * kGroup * kBlockBytes;
      // The stores that may still be reading are those of the other half of the ring.
      if (issuer) store_wait_read();
      named_sync(barrier_id, 128);
#pragma unroll
      for (int block = 0; block < kGroup; ++block) {
#pragma unroll
        for (int j = 0; j < 8; j += 2) {
          const float* v = &acc[(first / 8 + block * 8 + j) * 4];
          const u32 at = smem_address(group) + block * kBlockBytes + staged_row * 128 +
                         ((j + lane / 16) ^ (staged_row & 7)) * 16;
          store_matrix4(at, pack2(v[0], v[1]), pack2(v[2], v[3]), pack2(v[4], v[5]), pack2(v[6], v[7]));
        }
      }
      proxy_fence();
      named_sync(barrier_id, 128);
      if (issuer) {
#pragma unroll
        for (int block = 0; block < kGroup; ++block) {
          store_box<kStreaming>(map, group + block * kBlockBytes, column + first + block * 64, row);
        }
        store_commit();
      }
    }
  }
};
