// C[170,4741] = A^T * B, A stored [4298,170], B [4298,4741], fp16: rows of B begin at any multiple
// of 2 bytes.
//
// Idea: one tile has all 170 rows, so that B, 41 MB, is read once. 29 tiles of 168 columns have a
// cluster of four CTAs each, which split K: as many as run at once. All 384 threads load the next
// 48 of K, neighbours of a row, into registers while the 48 before are multiplied; rows of K stay
// rows in shared memory, padded to an odd number of 16 bytes, and ldmatrix turns them round. The
// sums of the cluster travel as the threads hold them, 16 bytes at a time.
#define HGP_BF16 0
#include "common/cluster_reduce.cuh"
#include "common/mma.cuh"
#include "common/ptx.cuh"

constexpr int kM = 170, kN = 4741, kK = 4298;
constexpr int kTileM = 192, kTileN = 168, kRanks = 4;
constexpr int kStep = 48, kSlice = 1088, kSteps = 23;
constexpr int kOwn = 4;     // rows of K that a warp loads for a step
constexpr int kWarps = 12;  // 4 x 3 of them, 48 x 56 of the tile each
constexpr int kMI = 3, kNI = 7;
constexpr int kBlocks = kMI * kNI;  // of 16 x 8, dealt to the ranks in turn
constexpr int kMost = (kBlocks + kRanks - 1) / kRanks;
constexpr int kWords = 3;  // of 4 bytes, that a lane loads of a row of A, and of B
constexpr int kPitchA = kTileM * 2 + 16, kPitchB = kTileN * 2 + 16;
constexpr int kStageA = kStep * kPitchA, kStage = kStageA + kStep * kPitchB;
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

__device__ __forceinline__ void store_word(u32 address, u32 value) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}

extern "C" __global__ void __launch_bounds__(32 * kWarps, 1)
    skinny_170x4741x4298_tn_f16(const u16* a, const u16* b, u16* c, int m, int n, int k, int lda, int ldb, int ldc) {
  extern __shared__ __align__(16) u8 smem[];
  __shared__ u64 arrived;

  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, rank = blockIdx.x % kRanks;
  const int tile_column = blockIdx.y * kTileN;
  if (threadIdx.x == 0) {
    const int held = (kBlocks + kRanks - 1 - (int)rank) / kRanks;
    barrier_init(&arrived, 1);
    barrier_init_fence();
    barrier_expect(&arrived, held * (kRanks - 1) * kUnit);
  }
  __syncwarp();
  cluster_arrive();

  // This warp's rows of each step. Columns beyond the last repeat it.
  const int begin = rank * kSlice;
  const u16* const from_a = a + (i64)(begin + (int)warp * kOwn) * lda;
  const u16* const from_b = b + (i64)(begin + (int)warp * kOwn) * ldb;
  const u32 to = smem_address(smem);
  int column_a[kWords], column_b[kWords];
#pragma unroll
  for (int j = 0; j < kWords; ++j) {
    column_a[j] = min_of(2 * ((int)lane + 32 * j), kM - 2);
    column_b[j] = min_of(tile_column + 2 * min_of((int)lane + 32 * j, kTileN / 2 - 1), kN - 1);
  }
  u32 words_a[kOwn][kWords], words_b[kOwn][kWords];
  const auto load = [&](int step) {
    const int left = min_of(kSlice, kK - begin) - step * kStep - (int)warp * kOwn;  // rows, from this warp's first on
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const u16* const line_a = from_a + (i64)(step * kStep + i) * lda;
      const u16* const line_b = from_b + (i64)(step * kStep + i) * ldb;
#pragma unroll
      for (int j = 0; j < kWords; ++j) {
        words_a[i][j] = load_pair(line_a + column_a[j], i, left);
        const u16* const p = line_b + column_b[j];
        const u32 low = load_element(p, i, left);
        words_b[i][j] = __byte_perm(low, load_element(p + (column_b[j] < kN - 1), i, left), 0x5410);
      }
    }
  };
  const auto leave = [&](int half) {
    const u32 at = to + half * kStage + lane * 4;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
#pragma unroll
      for (int j = 0; j < kWords; ++j) {
        store_word(at + (warp * kOwn + i) * kPitchA + j * 128, words_a[i][j]);
        if (32 * j + lane < kTileN / 2) {
          store_word(at + kStageA + (warp * kOwn + i) * kPitchB + j * 128, words_b[i][j]);
        }
      }
    }
  };

  // Multiply, each warp: 48 rows by 56 columns.
  float acc[kBlocks][4] = {};
  const u32 warp_m = warp % 4 * 48, warp_n = warp / 4 * 56;
  const u32 at_a = to + (lane / 16 * 8 + lane % 8) * kPitchA + (warp_m + lane / 8 % 2 * 8) * 2;
  const u32 at_b = to + kStageA + (lane / 8 % 2 * 8 + lane % 8) * kPitchB + (warp_n + lane / 16 * 8) * 2;
  const u32 at_last = to + kStageA + (lane % 16) * kPitchB + (warp_n + 48) * 2;
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
      load_matrix2_transposed(y[kNI - 1], at_last + half * kStage + step * 16 * kPitchB);
#pragma unroll
      for (int i = 0; i < kMI; ++i) {
        u32 x[4];
        load_matrix4_transposed(x, at_a + half * kStage + step * 16 * kPitchA + i * 32);
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
    const int row = warp_m + i / kNI * 16 + lane / 4;
    const int column = tile_column + (int)warp_n + i % kNI * 8 + (int)lane % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      u16* const p = c + (i64)(row + half * 8) * ldc + column;
      const u32 both = pack2(sum[2 * half], sum[2 * half + 1]);
      store_if(row + half * 8 < kM && column < kN, p, (u16)both);
      store_if(row + half * 8 < kM && column + 1 < kN, p + 1, (u16)(both >> 16));
    }
  }
}
