// From the accumulators of one warpgroup (m64, kColumns) to 16-bit rows of C in global memory. Three ways; which is
// best depends on the tile and on whether C fits L2 (a family's `epilogue` gene). The families with a ring name theirs
// RingEpilogue and store by HGP_STORE_BLOCK, both at the end of this file.
#pragma once
#include "common/ptx.cuh"

// One m64 block of C for one warpgroup. `row` and `column` are its first element; rows >= m and columns >= n are
// clipped. N is a multiple of 8, so a 16-byte unit lies inside or outside.
struct OutputBlock {
  u16* c;
  int ldc, m, n, row, column;
};

// Rounds two neighbouring blocks of 8 columns of a warp's 16 rows and turns them into rows in shared memory; `at` is
// the row of 16 bytes that this lane gives the address of, `v` the thread's 8 accumulators.
__device__ __forceinline__ void stage_blocks(u32 at, const float* v) {
  store_matrix4(at, pack2(v[0], v[1]), pack2(v[2], v[3]), pack2(v[4], v[5]), pack2(v[6], v[7]));
}

// 8 contiguous columns, rounded, of a row whose columns the map of B has grouped by 32; `v` is the first of the
// thread's accumulators of that row and group.
__device__ __forceinline__ Vec4 grouped_unit(const float* v) {
  return {pack2(v[0], v[4]), pack2(v[8], v[12]), pack2(v[1], v[5]), pack2(v[9], v[13])};
}

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
        stage_blocks(at, v);
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
        store_global16<kStreaming>(line + group * 32, grouped_unit(v));
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
          stage_blocks(at, v);
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

// What the families with a ring share: the way that HGP_EPILOGUE_* names, and by it the kernel's parameters for C and
// how a consumer warpgroup stores a block of 64 rows. Bulk stores go by a tensor map of C, the others by pointer,
// stride and size. `staging` and `first_barrier` (a named barrier for each) are those of all consumers, `turn` as in
// BulkEpilogue. Macros, for a function between the accumulators and their store makes another cubin.
#if HGP_EPILOGUE_BULK
template <int kColumns, bool kStreaming, int kBulkBlocks = 1>
using RingEpilogue = BulkEpilogue<kColumns, kStreaming, kBulkBlocks>;
#define HGP_OUTPUT const __grid_constant__ TensorMap map_c
#define HGP_LDC
#define HGP_STORE_BLOCK(acc, row, column, staging, warp, first_barrier, turn)                  \
  Epilogue::store(acc, &map_c, row, column, (staging) + (warp) / 4 * 4 * Epilogue::kWarpBytes, \
                  (first_barrier) + (warp) / 4, turn)
#else
#if HGP_EPILOGUE_GROUPED
template <int kColumns, bool kStreaming, int kBulkBlocks = 1>
using RingEpilogue = GroupedEpilogue<kColumns, kStreaming>;
#else
template <int kColumns, bool kStreaming, int kBulkBlocks = 1>
using RingEpilogue = StagedEpilogue<kColumns, kStreaming>;
#endif
#define HGP_OUTPUT u16* c
#define HGP_LDC , int ldc
#define HGP_STORE_BLOCK(acc, row, column, staging, warp, first_barrier, turn) \
  Epilogue::store(acc, OutputBlock{c, ldc, m, HGP_OF_C(n), row, column},      \
                  smem_address(staging) + (warp) * Epilogue::kWarpBytes)
#endif

// Store: all consumer threads, behind their last block. The thread that stored a warpgroup's blocks in bulk waits until
// they are in global memory: shared memory is another's once the CTA has ended.
__device__ __forceinline__ void finish_stores() {
#if HGP_EPILOGUE_BULK
  if (threadIdx.x % 128 == 0) store_wait_all();
#endif
}
