// Family sm90_gemv. C[M,N] = A[M,K] * B for M up to 16, the decode of language models. fp32 accumulate, layouts nn and
// nt, fp16 and bf16.
//
// Idea: the weights B are read once and nothing is shared, so they are the m16 operand of m16n8k16, the tokens its n8
// columns, and every thread loads exactly the fragments that it multiplies. What decides is bytes in flight: each
// thread has a ring of its own in shared memory (cp.async, no barrier), or with one stage loads into registers and
// leaves the rest to the other warps. A ring in registers does not work: ptxas gives its loads one scoreboard and waits
// for the youngest. K is permuted inside each 32 as in direct.cuh; a thread owns 2 * kMI neighbouring columns of C.
// Warps, then CTAs of a cluster, split K and add in a fixed order: one launch, deterministic.
// Valid: M up to kTokens, N and K multiples of 8, 16-byte aligned operands.
// Build: NVRTC, --gpu-architecture=sm_90a, genes as HGP_* macros (generator/families/gemv.py).
#include "common/mma.cuh"
#include "common/ptx.cuh"
#include "common/stream_loads.cuh"
#include "common/token_reduce.cuh"

constexpr int kMI = HGP_MI;  // m16 blocks of weights that a warp holds
constexpr int kWarpsN = HGP_WARPS_N;
constexpr int kWarpsK = HGP_WARPS_K;
constexpr int kUnroll = HGP_UNROLL;  // 32-chunks of K in a turn
constexpr int kStages = HGP_STAGES;  // turns in flight; 1: no ring
constexpr bool kAhead = HGP_AHEAD;   // activations go through the ring too
constexpr int kRanks = HGP_CLUSTER_K;
constexpr int kTokens = HGP_TOKENS;
constexpr int kBlocks = kTokens / 8;

constexpr int kOwned = 2 * kMI;  // neighbouring columns of C that a thread loads weights for
constexpr int kWarpN = 8 * kOwned;
constexpr int kTileN = kWarpN * kWarpsN;
constexpr int kThreads = 32 * kWarpsN * kWarpsK;
constexpr int kSpan = 32 * kUnroll;              // K of one warp in one turn, contiguous
constexpr int kPass = kSpan * kWarpsK * kRanks;  // K of all of them
// Loads of a thread for 32 of K: nt eight k of a column each, nn all its columns of one k each.
constexpr int kWords = HGP_B_MN_MAJOR ? kMI : 4;
constexpr int kLoads = 8 * kMI / kWords;
constexpr int kWeightBytes = kThreads * kUnroll * kLoads * kWords * 4;
constexpr int kStageBytes = kWeightBytes + (kAhead ? kThreads * kUnroll * kBlocks * 16 : 0);
constexpr int kRingBytes = kStages > 1 ? kStages * kStageBytes : 0;

using Reduce = TokenReduce<kTokens, kTileN, kWarpsK, kRanks, kThreads>;
constexpr int kSumBytes = kWarpsK * Reduce::kPart * 4;  // in the ring's place

struct Weights {
  u32 words[kUnroll][kLoads][kWords];

  // Two consecutive k, packed, of column `j` of those that this thread owns.
  __device__ __forceinline__ u32 pair(int u, int j, int i) const {
#if HGP_B_MN_MAJOR
    return __byte_perm(words[u][2 * i][j / 2], words[u][2 * i + 1][j / 2], j % 2 ? 0x7632 : 0x5410);
#else
    return words[u][j][i];
#endif
  }
};

struct Activations {
  u32 words[kUnroll][kBlocks][4];
};

// Where a thread's K begins and goes on. What remains of K after whole passes is the first turn, so that no load waits
// behind it. The number of turns depends on the warp alone: mma needs all its lanes.
struct Turns {
  int count, first, left, step;  // first k, K left from there, way to the second turn's k

  __device__ __forceinline__ Turns(int k, int warp_first, int lane_first) {
    const int whole = k / kPass;
    const bool rest = warp_first < k % kPass;
    const int start = rest ? whole * kPass : 0;
    count = whole + rest;
    first = start + warp_first + lane_first;
    left = k - first;
    step = rest ? -start : kPass;
  }
};

// Load: each thread, its own weights: eight k of each 32. To registers (load) or to its ring (send).
struct WeightStream {
  const u16* p;
  i64 ld;
  u64 policy;
  int left, step;

  __device__ __forceinline__ WeightStream(const u16* b, int ld, int column, const Turns& turns)
      : ld(ld), policy(evict_first()), left(turns.left), step(turns.step) {
    p = HGP_B_MN_MAJOR ? b + (i64)turns.first * ld + column : b + (i64)column * ld + turns.first;
  }
  __device__ __forceinline__ const u16* piece(int u, int i) const {
    return HGP_B_MN_MAJOR ? p + (u * 32 + i) * ld : p + i * ld + u * 32;
  }
  __device__ __forceinline__ void advance() {
    p += HGP_B_MN_MAJOR ? step * ld : step;
    left = kSpan, step = kPass;
  }
  __device__ __forceinline__ void load(Weights& to) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
#pragma unroll
      for (int i = 0; i < kLoads; ++i) load_weights(to.words[u][i], piece(u, i), u * 32 < left, policy);
    }
    advance();
  }
  __device__ __forceinline__ void send(u32 stage) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        const u32 to = stage + ((u * kLoads + i) * kThreads + threadIdx.x) * kWords * 4;
        send_weights<kWords * 4>(to, piece(u, i), u * 32 < left, policy);
      }
    }
    advance();
  }
};

// Load: each thread, its own activations. Tokens beyond M repeat the last one: they only reach outputs that are never
// stored.
struct ActivationStream {
  const u16* p[kBlocks];
  int left, step;

  __device__ __forceinline__ ActivationStream(const u16* a, int ld, int m, int token, const Turns& turns)
      : left(turns.left), step(turns.step) {
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) p[b] = a + (i64)min_of(token + 8 * b, m - 1) * ld + turns.first;
  }
  __device__ __forceinline__ void advance() {
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) p[b] += step;
    left = kSpan, step = kPass;
  }
  __device__ __forceinline__ void load(Activations& to) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) load_activations(to.words[u][b], p[b] + u * 32, u * 32 < left);
    }
    advance();
  }
  __device__ __forceinline__ void send(u32 stage) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) {
        const u32 to = stage + kWeightBytes + ((u * kBlocks + b) * kThreads + threadIdx.x) * 16;
        send_activations(to, p[b] + u * 32, u * 32 < left);
      }
    }
    advance();
  }
};

using Accumulator = float[kMI][kBlocks][4];

// Multiply: each warp. Adds the products of one turn, out of the registers of its threads.
__device__ __forceinline__ void multiply(Accumulator& acc, const Weights& w, const Activations& x) {
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
#pragma unroll
    for (int step = 0; step < 4; step += 2) {
#pragma unroll
      for (int i = 0; i < kMI; ++i) {
        const u32 low[2] = {w.pair(u, 2 * i, step), w.pair(u, 2 * i + 1, step)};
        const u32 high[2] = {w.pair(u, 2 * i, step + 1), w.pair(u, 2 * i + 1, step + 1)};
#pragma unroll
        for (int b = 0; b < kBlocks; ++b) {
          mma16816(acc[i][b], low[0], low[1], high[0], high[1], x.words[u][b][step], x.words[u][b][step + 1]);
        }
      }
    }
  }
}

// Load and multiply: each warp. All K of this warp by its ring at `ring` in shared memory. A thread reads only what it
// sent itself, so its own wait is enough; it refills a stage after its reads have been used.
__device__ __forceinline__ void multiply_ring(Accumulator& acc, WeightStream& w, ActivationStream& x, int turns,
                                              u32 ring) {
#pragma unroll
  for (int s = 0; s < kStages; ++s) {
    if (s < turns) {
      w.send(ring + s * kStageBytes);
      if (kAhead) x.send(ring + s * kStageBytes);
    }
    send_commit();
  }
  Activations activations;
  if (!kAhead) x.load(activations);
  u32 stage = ring;
#pragma unroll 1
  for (int left = turns; left > 0; --left) {
    Weights weights;
    send_wait<kStages - 1>();
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        take(weights.words[u][i], stage + ((u * kLoads + i) * kThreads + threadIdx.x) * kWords * 4);
      }
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) {
        if (kAhead) {
          take(activations.words[u][b], stage + kWeightBytes + ((u * kBlocks + b) * kThreads + threadIdx.x) * 16);
        }
      }
    }
    multiply(acc, weights, activations);
    if (!kAhead && left > 1) x.load(activations);
    if (left > kStages) {
      w.send(stage);
      if (kAhead) x.send(stage);
    }
    send_commit();
    stage = stage == ring + (kStages - 1) * kStageBytes ? ring : stage + kStageBytes;
  }
}

// Where column `column` of the product, as the tiles have them, is in B.
__device__ __forceinline__ int column_of_b(int column, int n) {
#ifdef HGP_GATE
  return column / 16 * 8 + column % 8 + column / 8 % 2 * (n / 2);
#else
  return column;
#endif
}

// Reduce: each thread. Leaves its sums in shared memory, where all warps' are added: tokens `token` and `token` + 1 of
// each eight, kOwned columns from `line` on.
__device__ __forceinline__ void put_sums(const Accumulator& acc, float* line, int token, int m) {
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int t = 8 * b + token + e;
      if (t >= m) continue;
#pragma unroll
      for (int i = 0; i < kMI; ++i) {
        *reinterpret_cast<float2*>(line + t * Reduce::kStride + 2 * i) = make_float2(acc[i][b][e], acc[i][b][2 + e]);
      }
    }
  }
}

extern "C" __global__ void __launch_bounds__(kThreads, HGP_CTAS_PER_SM)
    HGP_SYMBOL(const u16* a, const u16* b, u16* c, int m, int n, int k, int lda, int ldb, int ldc HGP_ADDEND) {
  extern __shared__ __align__(16) u8 smem[];

  // Setup, all threads: which columns and which part of K; one thread makes the barrier of the sum over the cluster.
  float* sums = reinterpret_cast<float*>(smem);
  float* inbox = reinterpret_cast<float*>(smem + (kRingBytes > kSumBytes ? kRingBytes : kSumBytes));
  u64* arrived = reinterpret_cast<u64*>(inbox + Reduce::kInbox);
  const int lane = threadIdx.x % 32;
  const int warp = warp_uniform(threadIdx.x / 32);
  const int warp_k = warp / kWarpsN;
  const int rank = kRanks > 1 ? cluster_rank() : 0;
  const int tile_column = blockIdx.y * kTileN;
  const int column = warp % kWarpsN * kWarpN + kOwned * (lane / 4);
  if (kRanks > 1) {
    if (threadIdx.x == 0) {
      barrier_init(arrived, 1);
      barrier_init_fence();
      barrier_expect(arrived, Reduce::arriving_bytes(rank, m));
    }
    __syncwarp();
    cluster_arrive();
  }
  const Turns turns(k, (rank * kWarpsK + warp_k) * kSpan, lane % 4 * 8);
  // Columns beyond N repeat the last ones; kOwned divides 8, which divides N.
  WeightStream weights(b, ldb, min_of(column_of_b(tile_column + column, n), n - kOwned), turns);
  ActivationStream activations(a, lda, m, lane / 4, turns);

  // Load and multiply, each warp: its part of K, through its threads' rings or straight to registers.
  wait_for_upstream();
  allow_dependents();
  Accumulator acc = {};
  if constexpr (kStages > 1) {
    multiply_ring(acc, weights, activations, turns.count, smem_address(smem));
    __syncthreads();  // the sums take the place of the rings
  } else {
#pragma unroll 1
    for (int left = turns.count; left > 0; --left) {
      Weights w;
      Activations x;
      weights.load(w);
      activations.load(x);
      multiply(acc, w, x);
    }
  }

  // Reduce and store, all threads: over the warps, then the cluster.
  put_sums(acc, sums + warp_k * Reduce::kPart + column, lane % 4 * 2, m);
  __syncthreads();
  if (kRanks > 1) cluster_wait();  // all inboxes are ready
  Reduce::store(sums, inbox, arrived, rank, m, TokenRows{c, ldc, n, tile_column HGP_GIVE_ADDEND});
}
