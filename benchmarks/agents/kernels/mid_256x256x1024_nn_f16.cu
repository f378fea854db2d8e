// C[256,256] = A[256,1024] * B[1024,256], fp16: 2 us, of which loads are one.
//
// Idea: 64 tiles of 32 x 32, each shared by two CTAs, so that 128 SMs take in 64 KB each; wgmma,
// which has 64 rows at least, would take in half as much again. Every warp copies its own 64 of K
// and waits for no one else's; the eight sums of a CTA and the two of the cluster meet in shared
// memory. Everything divides: there is no predicate.
#define HGP_BF16 0
#include "common/mma.cuh"
#include "common/ptx.cuh"
#include "common/tile_sum.cuh"

constexpr int kTileM = 32, kTileN = 32, kRanks = 2, kWarps = 8;
constexpr int kOwn = 64;                    // K of a warp
constexpr int kPitchA = 144, kPitchB = 80;  // bytes of a row in shared memory
constexpr int kAtB = 32 * kPitchA, kWarpBytes = kAtB + 64 * kPitchB;
constexpr int kSumsAt = kWarps * kWarpBytes;
constexpr int kSumRow = 40, kPart = kTileM * kSumRow;
using Sum = Meeting<kTileM * kTileN, kRanks>;

__device__ __forceinline__ void copy16(u32 to, const u16* p) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(p) : "memory");
}

__device__ __forceinline__ void load_matrix4(u32 (&to)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}

extern "C" __global__ void __launch_bounds__(32 * kWarps, 1)
    mid_256x256x1024_nn_f16(const u16* a, const u16* b, u16* c, int m, int n, int k, int lda, int ldb, int ldc) {
  extern __shared__ __align__(16) u8 smem[];
  __shared__ u64 arrived;

  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, rank = blockIdx.x % kRanks;
  const u32 tile_row = blockIdx.x / kRanks * kTileM, tile_column = blockIdx.y * kTileN;
  const u32 begin = (rank * kWarps + warp) * kOwn;
  const u32 own = smem_address(smem) + warp * kWarpBytes;

  // Load, each warp: its own K, all of it.
  wait_for_upstream();
  allow_dependents();
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const u32 unit = lane + 32 * i;
    copy16(own + unit / 8 * kPitchA + unit % 8 * 16, a + (i64)(tile_row + unit / 8) * lda + begin + unit % 8 * 8);
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const u32 unit = lane + 32 * i;
    copy16(own + kAtB + unit / 4 * kPitchB + unit % 4 * 16,
           b + (i64)(begin + unit / 4) * ldb + tile_column + unit % 4 * 8);
  }
  asm volatile("cp.async.commit_group;" ::: "memory");
  float* const sums = reinterpret_cast<float*>(smem + kSumsAt);
  const Sum meeting{sums + kWarps * kPart, &arrived};
  meeting.announce();
  asm volatile("cp.async.wait_group 0;" ::: "memory");
  __syncwarp();

  // Multiply, each warp: the tile over its own K.
  float acc[2][4][4] = {};
  const u32 from_a = own + lane % 16 * kPitchA + lane / 16 * 16;
  const u32 from_b = own + kAtB + (lane / 8 % 2 * 8 + lane % 8) * kPitchB + lane / 16 * 16;
#pragma unroll
  for (int step = 0; step < kOwn / 16; ++step) {
    u32 x[2][4];
#pragma unroll
    for (int i = 0; i < 2; ++i) load_matrix4(x[i], from_a + i * 16 * kPitchA + step * 32);
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      u32 y[4];
      load_matrix4_transposed(y, from_b + step * 16 * kPitchB + j * 32);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        mma16816(acc[i][2 * j], x[i][0], x[i][1], x[i][2], x[i][3], y[0], y[1]);
        mma16816(acc[i][2 * j + 1], x[i][0], x[i][1], x[i][2], x[i][3], y[2], y[3]);
      }
    }
  }
  meeting.meet();

  // Reduce over the warps, then over the cluster.
  float* const mine = sums + warp * kPart + lane / 4 * kSumRow + lane % 4 * 2;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      write_floats<2>(mine + i * 16 * kSumRow + j * 8, {acc[i][j][0], acc[i][j][1]});
      write_floats<2>(mine + (i * 16 + 8) * kSumRow + j * 8, {acc[i][j][2], acc[i][j][3]});
    }
  }
  __syncthreads();
  for (u32 at = threadIdx.x * 4; at < kTileM * kTileN; at += 4 * 32 * kWarps) {
    const float* const p = sums + at / kTileN * kSumRow + at % kTileN;
    meeting.send(sum_parts<kWarps, 4>(p, kPart), at, rank);
  }
  meeting.wait();
  if (threadIdx.x < Sum::kShare / 2) {
    const Floats<2> sum = meeting.sum<2>(threadIdx.x * 2);
    const u32 at = rank * Sum::kShare + threadIdx.x * 2;
    u16* const to = c + (i64)(tile_row + at / kTileN) * ldc + tile_column + at % kTileN;
    *reinterpret_cast<u32*>(to) = pack2(sum.v[0], sum.v[1]);
  }
}
