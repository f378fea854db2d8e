// Family sm90_swapab. C[M,N] = A * B for few rows of A (tokens) and a large B (weights), fp32
// accumulate, layouts nn and nt, fp16 and bf16.
//
// Idea: wgmma takes 64 rows at least, so the weights go there and the tokens become its columns, of
// which 8 are enough: no tensor work and no loads for rows that do not exist. A producer warp
// streams weights and tokens by TMA through a deep ring, several CTAs an SM if they fit; the CTAs
// of a cluster may split K and add through distributed shared memory. The tile is transposed on its
// way out by stmatrix. (The idea is in DeepGEMM's and vLLM's small-M paths.)
// Valid: any M, N and K multiples of 8, where K is split a k-tile at least for each CTA, 16-byte
// aligned operands.
// Build: NVRTC, --gpu-architecture=sm_90a, genes as HGP_* macros (generator/families/swapab.py).
#include "common/cluster_reduce.cuh"
#include "common/finish.cuh"
#include "common/ring.cuh"

constexpr int kTokens = HGP_TILE_M;
constexpr int kRows = HGP_TILE_N;  // of weights
constexpr int kSlabs = HGP_TILE_K / 64;
constexpr int kStages = HGP_STAGES;
constexpr int kConsumers = HGP_CONSUMERS;
constexpr int kSplitK = HGP_SPLIT_K;  // CTAs of a cluster that share a tile

constexpr int kBlocks = kRows / kConsumers / 64;
constexpr int kWarps = kConsumers * 4;
constexpr int kThreads = kWarps * 32 + (HGP_READS_AHEAD ? 64 : 32);

using Weights = Operand<kRows, HGP_B_MN_MAJOR, HGP_GROUPED_B>;
using Tokens = Operand<kTokens, false>;
using StageLayout = Stage<Weights, Tokens, kSlabs>;
using Range = KRange<HGP_TILE_K, kSplitK>;
using Cursor = RingCursor<kStages>;
using Reduce = RowReduce<kBlocks, kTokens / 2, kSplitK, kWarps>;
constexpr int kStagingBytes = kTokens * 16 * kElementBytes;  // of a warp: its 16 columns of C

struct Barriers {
  RingBarriers<kStages> ring;
  u64 share;  // this CTA's rows have come from all CTAs of the cluster
};

struct Tiles {
  int rows, columns, total, first, step;
  TileIndex only;  // where there is no other

  __device__ __forceinline__ Tiles(int m, int n)
      : rows(ceil_div(m, kTokens)),
        columns(ceil_div(n, kRows)),
        total(rows * columns),
        first(blockIdx.x / kSplitK),
        step(gridDim.x / kSplitK) {
    if (!HGP_PERSISTENT) {
      only = found(first);
      have(only.m), have(only.n);
    }
  }
  __device__ __forceinline__ TileIndex origin(int t) const { return !HGP_PERSISTENT ? only : found(t); }

 private:
  // All tokens of a slice of weights before the next slice.
  __device__ __forceinline__ TileIndex found(int t) const {
    const TileIndex at = tile_at<1, false, true>(t, rows, columns);
    return {at.m * kTokens, at.n * kRows};
  }
};

#ifdef HGP_GATE
// Store: each consumer warp. One m64 block of weights by kTokens, the warp's 16 rows of it, to 8 columns of C: the rows
// of the gate come first, so that a thread has both. `staging` is the warp's own.
__device__ __forceinline__ void store_transposed(const float* acc, u32 staging, u16* c, int ldc, int m, int n,
                                                 int token, int column) {
  constexpr int kMatrices = kTokens / 8;
  constexpr int kLast = kMatrices / 4 * 4;  // the first that is not stored with three others
  const int lane = threadIdx.x % 32;
  u32 pairs[kMatrices];
#pragma unroll
  for (int j = 0; j < kMatrices; ++j) {
    const float* v = &acc[j * 4];
    pairs[j] = pack2(HGP_GATE(v[0]) * v[2], HGP_GATE(v[1]) * v[3]);
  }
  // Rows of 16 bytes, a token each; the lane gives the address of a row of one of the 8 x 8 matrices.
#pragma unroll
  for (int j = 0; j < kLast; j += 4) {
    store_matrix4_transposed(staging + (j * 8 + lane) * 16, pairs[j], pairs[j + 1], pairs[j + 2], pairs[j + 3]);
  }
  if constexpr (kMatrices % 4 >= 2) {
    store_matrix2_transposed(staging + (kLast * 8 + lane % 16) * 16, pairs[kLast], pairs[kLast + 1]);
  }
  if constexpr (kMatrices % 2 != 0) {
    store_matrix1_transposed(staging + (kTokens - 8 + lane % 8) * 16, pairs[kMatrices - 1]);
  }
  __syncwarp();
#pragma unroll
  for (int first = 0; first < kTokens; first += 32) {
    const int unit = first + lane;
    if (unit < kTokens && token + unit < m && column < n) {
      store_global16<false>(c + (i64)(token + unit) * ldc + column, load_shared16(staging + unit * 16));
    }
  }
  __syncwarp();
}
#else
// Store: each consumer warp. One m64 block of weights by kTokens, the warp's 16 rows of it, to C. `staging` is the
// warp's own.
__device__ __forceinline__ void store_transposed(const float* acc, u32 staging, u16* c, int ldc, int m, int n,
                                                 int token, int column) {
  const int lane = threadIdx.x % 32;
  // Rows of 32 bytes, a token each; the lane gives the address of a row of one of four 8 x 8
  // matrices.
  const u32 row = staging + lane % 8 * 32 + lane / 8 % 2 * 16;
#pragma unroll
  for (int j = 0; j + 1 < kTokens / 8; j += 2) {
    const float* v = &acc[j * 4];
    store_matrix4_transposed(row + (j * 8 + lane / 16 * 8) * 32, pack2(v[0], v[1]), pack2(v[2], v[3]),
                             pack2(v[4], v[5]), pack2(v[6], v[7]));
  }
  if constexpr (kTokens % 16 != 0) {
    const float* v = &acc[(kTokens / 8 - 1) * 4];
    store_matrix2_transposed(row + (kTokens - 8) * 32, pack2(v[0], v[1]), pack2(v[2], v[3]));
  }
  __syncwarp();
#pragma unroll
  for (int first = 0; first < kTokens * 2; first += 32) {
    const int unit = first + lane;
    const int at = token + unit / 2, to = column + unit % 2 * 8;
    if (unit < kTokens * 2 && at < m && to < n) {
      store_global16<false>(c + (i64)at * ldc + to, load_shared16(staging + unit * 16));
    }
  }
  __syncwarp();
}
#endif

#if HGP_RESIDUAL
// Store: each consumer warp. Adds the warp's 16 columns of the residual, from `column` on, which come through `staging`
// and are turned round as C is behind them.
__device__ __forceinline__ void finish_transposed(float (&acc)[kTokens / 2], const u16* addend, u32 staging, int token,
                                                  int column, int m, int n) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int first = 0; first < kTokens * 2; first += 32) {
    const int unit = first + lane;
    const int at = token + unit / 2, from = column + unit % 2 * 8;
    Vec4 v = {0, 0, 0, 0};
    if (unit < kTokens * 2 && at < m && from < n) v = load_global16(addend + (i64)at * n + from);
    if (unit < kTokens * 2) store_shared16(staging + unit * 16, v);
  }
  __syncwarp();
  const u32 row = staging + lane % 8 * 32 + lane / 8 % 2 * 16;
  const auto add = [](float* v, u32 pair) {
    v[0] = finish_sum(v[0], widen((u16)pair));
    v[1] = finish_sum(v[1], widen((u16)(pair >> 16)));
  };
#pragma unroll
  for (int j = 0; j + 1 < kTokens / 8; j += 2) {
    u32 pairs[4];
    load_matrix4_transposed(pairs, row + (j * 8 + lane / 16 * 8) * 32);
#pragma unroll
    for (int i = 0; i < 4; ++i) add(&acc[j * 4 + i * 2], pairs[i]);
  }
  if constexpr (kTokens % 16 != 0) {
    u32 pairs[2];
    load_matrix2_transposed(pairs, row + (kTokens - 8) * 32);
#pragma unroll
    for (int i = 0; i < 2; ++i) add(&acc[kTokens / 2 - 4 + i * 2], pairs[i]);
  }
  __syncwarp();
}
#define HGP_FINISH_TRANSPOSED(acc, staging, token, column) finish_transposed(acc, addend, staging, token, column, m, n)
#elif defined(HGP_ACTIVATION)
// Store: each consumer warp. The thread's two columns of C, 8 apart, of the warp's 16 from `column` on.
__device__ __forceinline__ void finish_transposed(float (&acc)[kTokens / 2], const u16* bias, int column, int n) {
  const int first = column + threadIdx.x % 32 / 4;
  const Addend<1> low(bias, first, n), high(bias, first + 8, n);
#pragma unroll
  for (int i = 0; i < kTokens / 2; ++i) acc[i] = finish_sum(acc[i], i % 4 < 2 ? low.v[0] : high.v[0]);
}
#define HGP_FINISH_TRANSPOSED(acc, staging, token, column) finish_transposed(acc, addend, column, n)
#else
#define HGP_FINISH_TRANSPOSED(acc, staging, token, column)
#endif

// Load: one lane of the producer warp. Asks for all stages but the first of the first tile.
__device__ __forceinline__ void produce(u8* ring, RingBarriers<kStages>& barriers, const TensorMap* weights,
                                        const TensorMap* tokens, const Tiles& tiles, Range range) {
  Cursor cursor;
  cursor.advance();
  for (int t = tiles.first; t < tiles.total; t += tiles.step) {
    const TileIndex at = tiles.origin(t);
#pragma unroll 1
    for (int i = t == tiles.first ? range.begin + 1 : range.begin; i < range.end; ++i) {
      if (HGP_PERSISTENT || i >= range.begin + kStages) barrier_wait(&barriers.empty[cursor.stage], cursor.parity ^ 1);
      StageLayout::load(ring + cursor.stage * StageLayout::kBytes, barriers.full[cursor.stage], weights, at.n, tokens,
                        at.m, i);
      cursor.advance();
    }
  }
}

extern "C" __global__ void __launch_bounds__(kThreads, HGP_CTAS_PER_SM)
    HGP_SYMBOL(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b, u16* c, int m, int n,
               int k, int ldc HGP_ADDEND) {
  extern __shared__ u8 dynamic_smem[];
  __shared__ Barriers barriers;

  // Setup, all threads: the barriers, this CTA's tiles and its part of K.
  const int warp = warp_uniform(threadIdx.x / 32);
  const bool producer = warp == kWarps;
  open_ring<false>(warp, kWarps, barriers.ring, kWarps, &barriers.share, kSplitK > 1 ? Reduce::arriving_bytes() : 0,
                   &map_a, &map_b);
  __syncwarp();
  if (kSplitK > 1) cluster_arrive();
  u8* ring = HGP_FIRST_SLAB(dynamic_smem);
  u8* inbox = ring + kStages * StageLayout::kBytes;
  u8* staging = inbox + (kSplitK > 1 ? Reduce::kBytes : 0);
  const Tiles tiles(m, n);
  const u32 rank = kSplitK > 1 ? cluster_rank() : 0;
  const Range range(k, rank);
  __syncthreads();
  if constexpr (!HGP_READS_AHEAD) wait_for_upstream();

  // Load, first stage, by a lane of the producer warp. Here and not with the others, whose code lies far away.
  if (producer && elected()) {
    const TileIndex at = tiles.origin(tiles.first);
    StageLayout::load(ring, barriers.ring.full[0], &map_b, at.n, &map_a, at.m, range.begin);
  }
  if constexpr (!HGP_READS_AHEAD) allow_dependents();
  // The warp behind the producer keeps the door, and no more.
  if constexpr (HGP_READS_AHEAD) {
    if (warp > kWarps) return keep_door<HGP_TRIGGERS_EARLY>();
  }

  if (producer) {
    // Load, the rest, by the same lane.
    if (elected()) produce(ring, barriers.ring, &map_b, &map_a, tiles, range);
    // An early end would leave the ring to copies still under way only if a consumer had ended too:
    // none does.
  } else {
    const int first_block = warp / 4 * kBlocks;
    const auto release = [&](int stage) { release_by_warp(&barriers.ring.empty[stage]); };
    Cursor cursor;
    for (int t = tiles.first; t < tiles.total; t += tiles.step) {
      // Multiply, each consumer warpgroup: its rows of weights by all tokens of the tile. Leaves the sums in its
      // registers.
      const TileIndex at = tiles.origin(t);
      float acc[kBlocks][kTokens / 2];
      const int last =
          multiply_ring<Weights, Tokens, kSlabs>(acc, ring, barriers.ring, cursor, range.count(), first_block, release);
      wgmma_wait<0>();
      release(last);
      if constexpr (HGP_READS_AHEAD) wait_for_upstream();

      // Reduce, each consumer warp: leaves the sums over the cluster in the warps whose rows this CTA stores.
      if (kSplitK > 1) {
        __syncwarp();
        cluster_wait();
        if (!Reduce::sum(acc, inbox, &barriers.share, rank, warp)) return;
      }

      // Store, each consumer warp: 16 rows of each block, columns of C.
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
        const int column = at.n + (first_block + block) * 64 + warp % 4 * 16;
        const u32 own = smem_address(staging) + warp * kStagingBytes;
        HGP_FINISH_TRANSPOSED(acc[block], own, at.m, column);
        store_transposed(acc[block], own, c, ldc, m, HGP_OF_C(n), at.m, HGP_OF_C(column));
      }
    }
  }
  // Finish, all threads but the door's and those that hold nothing to store. A grid never ends before the one ahead.
  if constexpr (HGP_READS_AHEAD) wait_together();
}
