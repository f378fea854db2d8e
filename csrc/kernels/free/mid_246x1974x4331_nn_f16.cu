// C[246,1974] = A[246,4331] * B[4331,1974], fp16: rows of A begin at any multiple of 2 bytes, those
// of B at 4.
//
// Idea: 28 tiles of 128 x 144 have a cluster of four CTAs each, which split K: as many as run at
// once. All 384 threads load the next 64 of K into registers, of A two neighbours one by one, of B
// as words, while the 64 before are multiplied. In shared memory rows are padded to an odd number
// of 16 bytes; ldmatrix reads A as it lies and turns B round. The sums of the cluster travel as the
// threads hold them, 16 bytes at a time.
#define HGP_BF16 0
#include "common/cluster_reduce.cuh"
#include "common/mma.cuh"
#include "common/ptx.cuh"

constexpr int kM = 246, kN = 1974, kK = 4331;
constexpr int kTileM = 128, kTileN = 144, kRanks = 4;
constexpr int kStep = 64, kSlice = 1088, kSteps = 17;
constexpr int kWarps = 12;  // 4 x 3 of them, 32 x 48 of the tile each
constexpr int kMI = 2, kNI = 6;
constexpr int kBlocks = kMI * kNI;  // of 16 x 8, dealt to the ranks in turn
constexpr int kMost = (kBlocks + kRanks - 1) / kRanks;
constexpr int kOwnA = 11;  // rows of A that a warp loads for a step, every twelfth
constexpr int kOwnB = 6;   // rows of B
constexpr int kWords = 3;  // of 4 bytes, that a lane loads of a row of B
constexpr int kPitchA = kStep * 2 + 16, kPitchB = kTileN * 2 + 16;
constexpr int kStageA = kTileM * kPitchA, kStage = kStageA + kStep * kPitchB;
constexpr int kInboxAt = 2 * kStage;
constexpr int kUnit = 32 * kWarps * 16;  // bytes of a block of all threads

__device__ __forceinline__ u32 load_element(const u16* p, int at, int end) {
  u32 value = 0;
  asm volatile("{ .reg .pred p;\nsetp.lt.s32 p, %2, %3;\n@p ld.global.u16 %0, [%1]; }"
               : "+r"(value)
               : "l"(p), "r"(at), "r"(end)
               : "memory");
  return value;
}

__device__ __forceinline__ u32 load_pair(const u16* p, int at, int end) {
  u32 value = 0;
  asm volatile("{ .reg .pred p;\nsetp.lt.s32 p, %2, %3;\n@p ld.global.u32 %0, [%1]; }"
               : "+r"(value)
               : "l"(p), "r"(at), "r"(end)
               : "memory");
  return value;
}

__device__ __forceinline__ void load_matrix4(u32 (&to)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}

__device__ __forceinline__ void store_word(u32 address, u32 value) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}

extern "C" __global__ void __launch_bounds__(32 * kWarps, 1)
    mid_246x1974x4331_nn_f16(const u16* a, const u16* b, u16* c, int m, int n, int k, int lda, int ldb, int ldc) {
  extern __shared__ __align__(16) u8 smem[];
  __shared__ u64 arrived;

  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, rank = blockIdx.x % kRanks;
  const int tile_row = blockIdx.x / kRanks * kTileM, tile_column = blockIdx.y * kTileN;
  if (threadIdx.x == 0) {
    const int held = (kBlocks + kRanks - 1 - (int)rank) / kRanks;
    barrier_init(&arrived, 1);
    barrier_init_fence();
    __syncwarp(__activemask());  // Keeps the branch, as in open_ring: else the whole warp makes the barrier.
    barrier_expect(&arrived, held * (kRanks - 1) * kUnit);
  }
  __syncwarp();
  cluster_arrive();

  // This warp's rows of each step. Rows and columns beyond the last repeat it.
  const int begin = rank * kSlice;
  const u16* from_a[kOwnA];
#pragma unroll
  for (int i = 0; i < kOwnA; ++i) {
    const int row = min_of((int)warp + kWarps * i, kTileM - 1);
    from_a[i] = a + (i64)min_of(tile_row + row, kM - 1) * lda + begin + 2 * lane;
  }
  const u16* const from_b = b + (i64)(begin + (int)warp) * ldb;
  int column[kWords];
#pragma unroll
  for (int j = 0; j < kWords; ++j) {
    column[j] = min_of(tile_column + 2 * min_of((int)lane + 32 * j, kTileN / 2 - 1), kN - 2);
  }
  const u32 to = smem_address(smem);
  u32 words_a[kOwnA], words_b[kOwnB][kWords];
  const auto load = [&](int step) {
    const int left = min_of(kSlice, kK - begin) - step * kStep;
#pragma unroll
    for (int i = 0; i < kOwnA; ++i) {
      const u16* const p = from_a[i] + step * kStep;
      const int at = 2 * (int)lane;
      words_a[i] = __byte_perm(load_element(p, at, left), load_element(p + 1, at + 1, left), 0x5410);
    }
#pragma unroll
    for (int i = 0; i < kOwnB; ++i) {
      const int row = warp + kWarps * i;
      const u16* const line = from_b + (i64)(step * kStep + kWarps * i) * ldb;
#pragma unroll
      for (int j = 0; j < kWords; ++j) {
        words_b[i][j] = load_pair(line + column[j], row, min_of(left, kStep));
      }
    }
  };
  const auto leave = [&](int half) {
    const u32 at = to + half * kStage + lane * 4;
#pragma unroll
    for (int i = 0; i < kOwnA; ++i) {
      const u32 row = warp + kWarps * i;
      if (row < kTileM) store_word(at + row * kPitchA, words_a[i]);
    }
#pragma unroll
    for (int i = 0; i < kOwnB; ++i) {
      const u32 row = warp + kWarps * i;
#pragma unroll
      for (int j = 0; j < kWords; ++j) {
        if (row < kStep && 32 * j + lane < kTileN / 2) {
          store_word(at + kStageA + row * kPitchB + j * 128, words_b[i][j]);
        }
      }
    }
  };

  // Multiply, each warp: 32 rows by 48 columns.
  float acc[kBlocks][4] = {};
  const u32 warp_m = warp % 4 * 32, warp_n = warp / 4 * 48;
  const u32 at_a = to + (warp_m + lane % 16) * kPitchA + lane / 16 * 16;
  const u32 at_b = to + kStageA + (lane / 8 % 2 * 8 + lane % 8) * kPitchB + (warp_n + lane / 16 * 8) * 2;
  const auto multiply = [&](int half) {
#pragma unroll
    for (int step = 0; step < kStep / 16; ++step) {
      u32 y[kNI][2];
#pragma unroll
      for (int j = 0; j < kNI / 2; ++j) {
        u32 both[4];
        load_matrix4_transposed(both, at_b + half * kStage + step * 16 * kPitchB + j * 32);
        y[2 * j][0] = both[0], y[2 * j][1] = both[1], y[2 * j + 1][0] = both[2], y[2 * j + 1][1] = both[3];
      }
#pragma unroll
      for (int i = 0; i < kMI; ++i) {
        u32 x[4];
        load_matrix4(x, at_a + half * kStage + i * 16 * kPitchA + step * 32);
#pragma unroll
        for (int j = 0; j < kNI; ++j) mma16816(acc[i * kNI + j], x[0], x[1], x[2], x[3], y[j][0], y[j][1]);
      }
    }
  };

  wait_for_upstream();
  allow_dependents();
  load(0);
#pragma unroll 1
  for (int step = 0; step < kSteps; ++step) {
    leave(step % 2);
    __syncthreads();
    if (step + 1 < kSteps) load(step + 1);
    multiply(step % 2);
  }

  // Reduce over the cluster: block i ends in the CTA i % kRanks.
  cluster_wait();
  const u32 inbox = to + kInboxAt + threadIdx.x * 16;
#pragma unroll
  for (int i = 0; i < kBlocks; ++i) {
    const u32 owner = i % kRanks;
    if (owner == rank) continue;
    send16(remote_address(inbox + (rank * kMost + i / kRanks) * kUnit, owner),
           remote_address(smem_address(&arrived), owner), acc[i]);
  }
  barrier_wait_cluster(&arrived, 0);
#pragma unroll
  for (int i = 0; i < kBlocks; ++i) {
    if (i % kRanks != rank) continue;
    float sum[4];
#pragma unroll
    for (int source = 0; source < kRanks; ++source) {
      const Vec4 part = load_shared16(inbox + (source * kMost + i / kRanks) * kUnit);
      const float v[4] = {__uint_as_float(part.x), __uint_as_float(part.y), __uint_as_float(part.z),
                          __uint_as_float(part.w)};
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float summand = source == (int)rank ? acc[i][e] : v[e];
        sum[e] = source == 0 ? summand : sum[e] + summand;
      }
    }
    const int row = tile_row + (int)warp_m + i / kNI * 16 + (int)lane / 4;
    const int first = tile_column + (int)warp_n + i % kNI * 8 + (int)lane % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      store_if(row + half * 8 < kM && first < kN, c + (i64)(row + half * 8) * ldc + first,
               pack2(sum[2 * half], sum[2 * half + 1]));
    }
  }
}
