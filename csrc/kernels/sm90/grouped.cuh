// Family sm90_grouped. C[T,N]: rows of A (tokens) in groups that follow each other, each group times a matrix of its
// own, B[e] (weights of an expert); fp32 accumulate, layouts nn and nt of each B[e], fp16 and bf16.
//
// Idea: groups are small and of any size, so the weights go to wgmma's rows and the tokens become its columns, as in
// sm90_swapab. Where groups end only the device knows: each CTA lists the groups that have tokens, with the tiles
// before each, and walks every gridDim.x-th tile of the list. Weights come from a map with the expert as its third
// dimension, so that a tile beyond N or K of an expert is filled with zeros and not with the next expert; tokens come
// from any row on, rows of the next group among them, which are multiplied and not stored.
// Valid: any T, N and K multiples of 8, HGP_MAX_GROUPS experts at most, 16-byte aligned operands, ends of groups that
// rise. Ends outside 0..T are taken as 0 or T, an end below the one before makes an empty group, and rows past the last
// end are not written.
// Build: NVRTC, --gpu-architecture=sm_90a, genes as HGP_* macros (generator/families/grouped.py).
#include "common/ring.cuh"

constexpr int kTokens = HGP_TILE_M;
constexpr int kRows = HGP_TILE_N;  // of weights
constexpr int kSlabs = HGP_TILE_K / 64;
constexpr int kStages = HGP_STAGES;
constexpr int kConsumers = HGP_CONSUMERS;
constexpr bool kPingpong = HGP_PINGPONG;  // consumers take tiles in turn; else they share each by rows
constexpr bool kReallocate = HGP_REALLOCATE;

constexpr int kBlocks = kRows / 64 / (kPingpong ? 1 : kConsumers);
constexpr int kProducer = kConsumers * 4;  // the warp that loads
constexpr int kThreads = kConsumers * 128 + (kReallocate ? 128 : 32);
constexpr int kOrderBarrier = 1;  // ids 1, 2: whose turn the tensor cores are (pingpong)

using Weights = Operand<kRows, HGP_B_MN_MAJOR>;
using Tokens = Operand<kTokens, false>;
using StageLayout = Stage<Weights, Tokens, kSlabs>;
using Cursor = RingCursor<kStages>;
constexpr int kStaged = min_of(kTokens, 64);                 // tokens that a warp turns round at once
constexpr int kStagingBytes = kStaged * 16 * kElementBytes;  // of a warp: its 16 columns of C

struct alignas(16) Group {
  int first;       // tiles of tokens of all groups before it
  int start, end;  // rows of A and C
  int expert;
};

constexpr int kChunks = HGP_MAX_GROUPS / 32;  // of experts, a lane each
constexpr int kOwn = ceil_div(kChunks, kThreads / 32);

struct Shared {
  RingBarriers<kStages> ring;
  int tiles[kChunks], groups[kChunks];
};

__device__ __forceinline__ int load_end(const int* ends, int m) {
  int end;
  asm volatile("ld.global.s32 %0, [%1];" : "=r"(end) : "l"(ends) : "memory");
  return max(0, min(end, m));
}

// Setup: all threads. Leaves in `list` the groups with tokens, in their order, and behind the last one how many tiles
// of tokens there are, which it returns. The caller meets before it reads the list.
__device__ __forceinline__ int list_groups(Group* list, Shared& shared, const int* ends, int experts, int m) {
  const int lane = threadIdx.x % 32;
  int start[kOwn], end[kOwn], through[kOwn];
  u32 filled[kOwn];
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int expert = (i * (kThreads / 32) + threadIdx.x / 32) * 32 + lane;
    start[i] = expert > 0 && expert < experts ? load_end(ends + expert - 1, m) : 0;
    end[i] = expert < experts ? load_end(ends + expert, m) : 0;
  }
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int chunk = i * (kThreads / 32) + threadIdx.x / 32;
    through[i] = ceil_div(max(end[i] - start[i], 0), kTokens);
    filled[i] = __ballot_sync(0xffffffff, through[i] > 0);
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const int before = __shfl_up_sync(0xffffffff, through[i], distance);
      through[i] += lane >= distance ? before : 0;
    }
    if (lane == 31 && chunk < kChunks) {
      shared.tiles[chunk] = through[i];
      shared.groups[chunk] = __popc(filled[i]);
    }
  }
  __syncthreads();
  const int tiles = lane < kChunks ? shared.tiles[lane] : 0;
  const int groups = lane < kChunks ? shared.groups[lane] : 0;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int chunk = i * (kThreads / 32) + threadIdx.x / 32;
    const int tiles_before = __reduce_add_sync(0xffffffff, lane < chunk ? tiles : 0);
    const int groups_before = __reduce_add_sync(0xffffffff, lane < chunk ? groups : 0);
    if (filled[i] >> lane & 1) {
      const int own = ceil_div(end[i] - start[i], kTokens);
      list[groups_before + __popc(filled[i] & ((1u << lane) - 1))] = {tiles_before + through[i] - own, start[i], end[i],
                                                                      chunk * 32 + lane};
    }
  }
  const int total = __reduce_add_sync(0xffffffff, tiles);
  const int count = __reduce_add_sync(0xffffffff, groups);
  if (threadIdx.x == 0) list[count].first = total;
  return total;
}

// The tiles of one role, from the CTA's `t`-th on: all tokens of a slice of weights before the next slice, so that
// weights come from memory once.
struct Walk {
  const Group* group;
  int t, columns, total;
  int token, column;

  __device__ __forceinline__ Walk(const Group* list, int tiles, int n)
      : group(list), t(blockIdx.x), columns(ceil_div(n, kRows)), total(tiles * columns), token(0), column(0) {}
  // Whether there is a tile left, and where it is.
  __device__ __forceinline__ bool find() {
    if (t >= total) return false;
    while (t >= group[1].first * columns) ++group;
    const int tiles = group[1].first - group->first;
    const int within = t - group->first * columns;
    const int slice = quotient<true>(within, tiles);
    token = group->start + (within - slice * tiles) * kTokens;
    column = slice * kRows;
    return true;
  }
};

// One box of a rank-3 map to shared memory.
__device__ __forceinline__ void load_box_of(void* dst, const TensorMap* map, u64* bar, int inner, int outer,
                                            int expert) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::
          "r"(smem_address(dst)),
      "l"(map), "r"(smem_address(bar)), "r"(inner), "r"(outer), "r"(expert)
      : "memory");
}

// Load: one lane of the producer warp. Asks for all stages of all tiles.
__device__ __forceinline__ void produce(u8* ring, RingBarriers<kStages>& barriers, const TensorMap* weights,
                                        const TensorMap* tokens, Walk walk, int k_tiles) {
  Cursor cursor;
  for (; walk.find(); walk.t += gridDim.x) {
    const int expert = walk.group->expert;
#pragma unroll 1
    for (int i = 0; i < k_tiles; ++i) {
      u64* const full = barriers.full[cursor.stage];
      u8* const stage = ring + cursor.stage * StageLayout::kBytes;
      barrier_wait(&barriers.empty[cursor.stage], cursor.parity ^ 1);
      barrier_expect(full, StageLayout::kBytes);
#pragma unroll
      for (int slab = 0; slab < kSlabs; ++slab) {
        u8* const to = StageLayout::slab_a(stage, slab);
        const int k = (i * kSlabs + slab) * 64;
        if constexpr (HGP_B_MN_MAJOR) {
#pragma unroll
          for (int row = 0; row < kRows; row += 64) {
            load_box_of(to + row * 128, weights, full, walk.column + row, k, expert);
          }
        } else {
          load_box_of(to, weights, full, k, walk.column, expert);
        }
        Tokens::load(StageLayout::slab_b(stage, slab), tokens, full, walk.token, k);
      }
      cursor.advance();
    }
  }
}

// Store: each consumer warp. Its 16 columns of C from `column` on, of the tokens from `token` to the group's end.
// `staging` is the warp's own: kStaged rows of 32 bytes, a token each, where each of 8 x 8 matrices is turned round.
__device__ __forceinline__ void store_turned(const float* acc, u32 staging, u16* c, int ldc, int n, int token, int end,
                                             int column) {
  const int lane = threadIdx.x % 32;
  const u32 row = staging + lane % 8 * 32 + lane / 8 % 2 * 16;
#pragma unroll
  for (int from = 0; from < kTokens; from += kStaged) {
    const int turned = min_of(kStaged, kTokens - from);  // known to the compiler
    if (token + from >= end) return;
#pragma unroll
    for (int j = 0; j < turned; j += 16) {
      const float* v = &acc[(from + j) / 2];
      if (j + 16 <= turned) {
        store_matrix4_transposed(row + (j + lane / 16 * 8) * 32, pack2(v[0], v[1]), pack2(v[2], v[3]),
                                 pack2(v[4], v[5]), pack2(v[6], v[7]));
      } else {
        store_matrix2_transposed(row + j * 32, pack2(v[0], v[1]), pack2(v[2], v[3]));
      }
    }
    __syncwarp();
#pragma unroll
    for (int first = 0; first < turned * 2; first += 32) {
      const int unit = first + lane;
      const int at = token + from + unit / 2, to = column + unit % 2 * 8;
      if (unit < turned * 2 && at < end && to < n) {
        store_global16<false>(c + (i64)at * ldc + to, load_shared16(staging + unit * 16));
      }
    }
    __syncwarp();
  }
}

extern "C" __global__ void __launch_bounds__(kThreads, HGP_CTAS_PER_SM)
    HGP_SYMBOL(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b, u16* c, int m, int n,
               int k, int ldc, const int* ends, int experts) {
  extern __shared__ u8 dynamic_smem[];
  __shared__ Shared shared;

  // Setup, all threads: the barriers, then the groups.
  u8* ring = HGP_FIRST_SLAB(dynamic_smem);
  u8* staging = ring + kStages * StageLayout::kBytes;
  Group* list = reinterpret_cast<Group*>(staging + kProducer * kStagingBytes);
  const int warp = warp_uniform(threadIdx.x / 32);
  open_ring_alone(threadIdx.x == kConsumers * 128, shared.ring, kPingpong ? 4 : kProducer, &map_a, &map_b, [] {});
  const int k_tiles = ceil_div(k, HGP_TILE_K);
  wait_for_upstream();
  const int tiles = list_groups(list, shared, ends, experts, m);
  allow_dependents();
  __syncthreads();
  Walk walk(list, tiles, n);

  if (warp >= kProducer) {
    // Load, by one lane of the producer's first warp.
    if (kReallocate) give_registers<40>();
    if (warp == kProducer && elected()) produce(ring, shared.ring, &map_b, &map_a, walk, k_tiles);
    return;
  }
  if (kReallocate) take_registers<232>();
  const int consumer = warp / 4;
  const int first_block = kPingpong ? 0 : consumer * kBlocks;
  const auto release = [&](int stage) { release_by_warp(&shared.ring.empty[stage]); };
  Cursor cursor;
  if (kPingpong && consumer == 1) {
    if (walk.t < walk.total) named_arrive(kOrderBarrier, 256);
    walk.t += gridDim.x;
    cursor.skip(k_tiles);
  }
  // Multiply and store, each consumer warpgroup: its rows of weights of every tile or, in turn, whole tiles.
  for (; walk.find(); walk.t += kPingpong ? 2 * gridDim.x : gridDim.x) {
    float acc[kBlocks][kTokens / 2];
    if (kPingpong) named_sync(kOrderBarrier + consumer, 256);
    const int last =
        multiply_ring<Weights, Tokens, kSlabs>(acc, ring, shared.ring, cursor, k_tiles, first_block, release);
    if (kPingpong) {
      // Issued, not finished: the other consumer's products queue up behind these without a gap.
      if (walk.t + (int)gridDim.x < walk.total) named_arrive(kOrderBarrier + 1 - consumer, 256);
      cursor.skip(k_tiles);
    }
    wgmma_wait<0>();
    release(last);
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      store_turned(acc[block], smem_address(staging) + warp * kStagingBytes, c, ldc, n, walk.token, walk.group->end,
                   walk.column + (first_block + block) * 64 + warp % 4 * 16);
    }
  }
}
