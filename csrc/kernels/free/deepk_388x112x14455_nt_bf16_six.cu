// C[388,112] = A[388,14455] * B^T, bf16: two operands whose rows begin at any multiple of 2 bytes,
// and a deep K.
//
// Idea: as its neighbour without the last word of this name, in six steps of 320 of K in place of eight of 256: each step
// waits once for its loads, of which 75 KB are in flight. All registers and all shared memory go into that.
#define HGP_BF16 1
#include "common/mma.cuh"
#include "common/ptx.cuh"
#include "common/tile_sum.cuh"

constexpr int kM = 388, kN = 112, kK = 14455;
constexpr int kTileM = 64, kTileN = 56, kRanks = 8;
constexpr int kStep = 320, kSlice = 1808, kSteps = 6;  // K of a step, of a CTA; steps
constexpr int kWarps = 16, kGroups = 4;                // groups of four warps, 16 rows of the tile each
constexpr int kRows = kTileM + kTileN;
constexpr int kPitch = kStep * 2 + 16;  // bytes of a row in shared memory
constexpr int kStage = kRows * kPitch;
constexpr int kSumRow = kTileN;
constexpr int kPart = kTileM * kSumRow;
constexpr int kSumsAt = 2 * kStage;
constexpr int kInboxAt = kSumsAt + kGroups * kPart * 4;
using Sum = Meeting<kTileM * kTileN, kRanks>;

__device__ __forceinline__ u32 load_element(const u16* p, int at, int end) {
  u32 value = 0;
  asm volatile("{ .reg .pred p;\nsetp.lt.s32 p, %2, %3;\n@p ld.global.u16 %0, [%1]; }"
               : "+r"(value)
               : "l"(p), "r"(at), "r"(end)
               : "memory");
  return value;
}

__device__ __forceinline__ void store_word(u32 address, u32 value) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}

template <int kCount>
__device__ __forceinline__ void load_matrices(u32 (&to)[kCount], u32 address) {
  if constexpr (kCount == 4) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
                 : "=r"(to[0]), "=r"(to[1])
                 : "r"(address)
                 : "memory");
  }
}

// The loads of one thread for a step: two neighbours of K of eight rows, at four places.
struct Ahead {
  u32 words[8][kStep / 64];
};

extern "C" __global__ void __launch_bounds__(32 * kWarps, 1)
    deepk_388x112x14455_nt_bf16_six(const u16* a, const u16* b, u16* c, int m, int n, int k, int lda, int ldb, int ldc) {
  extern __shared__ __align__(16) u8 smem[];
  __shared__ u64 arrived;

  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, rank = blockIdx.x % kRanks;
  const int tile_row = blockIdx.x / kRanks * kTileM, tile_column = blockIdx.y * kTileN;
  const Sum meeting{reinterpret_cast<float*>(smem + kInboxAt), &arrived};
  // As Meeting::announce does it, but a lane that waits for itself keeps the branch: as predicates the whole warp would
  // make the barrier, a race to racecheck.
  if (threadIdx.x == 0) {
    barrier_init(&arrived, 1);
    barrier_init_fence();
    __syncwarp(__activemask());
    barrier_expect(&arrived, kTileM * kTileN * 4);
  }
  __syncwarp();
  cluster_arrive();

  // Rows of this thread's loads: every sixteenth, four of A, then of B. Rows beyond the last of A
  // repeat it.
  const int begin = rank * kSlice;
  const u16* rows[8];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = warp + 16 * i;
    rows[i] = a + (i64)min_of(tile_row + row, kM - 1) * lda + begin + 2 * lane;
    rows[4 + i] = b + (i64)(tile_column + min_of(row, kTileN - 1)) * ldb + begin + 2 * lane;
  }
  const u32 to = smem_address(smem) + warp * kPitch + lane * 4;

  const auto load = [&](Ahead& ahead, int step) {
    const int left = min_of(kSlice, kK - begin) - step * kStep - 2 * (int)lane;  // of K, from this thread's first on
#pragma unroll
    for (int i = 0; i < 8; ++i) {
#pragma unroll
      for (int j = 0; j < kStep / 64; ++j) {
        const u16* p = rows[i] + step * kStep + j * 64;
        ahead.words[i][j] = __byte_perm(load_element(p, j * 64, left), load_element(p + 1, j * 64 + 1, left), 0x5410);
      }
    }
  };
  const auto leave = [&](const Ahead& ahead, int half) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (i == 7 && warp >= kRows % 16) break;
#pragma unroll
      for (int j = 0; j < kStep / 64; ++j)
        store_word(to + half * kStage + i * 16 * kPitch + j * 128, ahead.words[i][j]);
    }
  };

  // Multiply, each warp: 16 rows by all columns, every fourth 16 of K.
  float acc[7][4] = {};
  const u32 warp_m = warp % 4 * 16, group = warp / 4;
  const u32 from_a = smem_address(smem) + (warp_m + lane % 16) * kPitch + lane / 16 * 16 + group * 32;
  const u32 from_b = smem_address(smem) + (kTileM + lane / 16 * 8 + lane % 8) * kPitch + lane / 8 % 2 * 16 + group * 32;
  const u32 from_last = smem_address(smem) + (kTileM + 48 + lane % 8) * kPitch + lane / 8 % 2 * 16 + group * 32;
  const auto multiply = [&](int half) {
#pragma unroll
    for (int step = 0; step < kStep / 16 / kGroups; ++step) {
      const u32 at = half * kStage + step * kGroups * 32;
      u32 x[4];
      load_matrices(x, from_a + at);
#pragma unroll
      for (int j = 0; j < 3; ++j) {
        u32 y[4];
        load_matrices(y, from_b + at + j * 16 * kPitch);
        mma16816(acc[2 * j], x[0], x[1], x[2], x[3], y[0], y[1]);
        mma16816(acc[2 * j + 1], x[0], x[1], x[2], x[3], y[2], y[3]);
      }
      u32 y[2];
      load_matrices(y, from_last + at);
      mma16816(acc[6], x[0], x[1], x[2], x[3], y[0], y[1]);
    }
  };

  wait_for_upstream();
  allow_dependents();
  Ahead ahead;
  load(ahead, 0);
#pragma unroll 1
  for (int step = 0; step < kSteps; ++step) {
    leave(ahead, step % 2);
    __syncthreads();
    if (step + 1 < kSteps) load(ahead, step + 1);
    multiply(step % 2);
  }

  // Reduce over the groups of warps, then over the cluster.
  float* const sums = reinterpret_cast<float*>(smem + kSumsAt);
#pragma unroll
  for (int j = 0; j < 7; ++j) {
    float* p = sums + group * kPart + (warp_m + lane / 4) * kSumRow + j * 8 + lane % 4 * 2;
    write_floats<2>(p, {acc[j][0], acc[j][1]});
    write_floats<2>(p + 8 * kSumRow, {acc[j][2], acc[j][3]});
  }
  __syncthreads();
  meeting.meet();
  for (u32 at = threadIdx.x * 4; at < kTileM * kTileN; at += 32 * kWarps * 4) {
    const float* p = sums + at / kTileN * kSumRow + at % kTileN;
    meeting.send(sum_parts<kGroups, 4>(p, kPart), at, rank);
  }
  meeting.wait();
  if (threadIdx.x < Sum::kShare / 2) {
    const Floats<2> sum = meeting.sum<2>(threadIdx.x * 2);
    const u32 at = rank * Sum::kShare + threadIdx.x * 2;
    const int row = tile_row + at / kTileN, column = tile_column + at % kTileN;
    store_if(row < kM, c + (i64)row * ldc + column, pack2(sum.v[0], sum.v[1]));
  }
}
