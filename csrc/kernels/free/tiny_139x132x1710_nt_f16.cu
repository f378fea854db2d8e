// C[139,132] = A[139,1710] * B^T, fp16: rows begin at multiples of 4 bytes, and all of it is
// latency.
//
// Idea: 30 tiles of 32 x 24 with a cluster of four CTAs each, 120 in one wave. A CTA asks for its
// quarter of K at once, by copies of 4 bytes that whole warps make along a row: one line of L1 a
// copy, where loads of fragments touch eight. Rows are padded to an odd number of 16 bytes; eight
// warps each multiply the whole tile over every eighth 16 of K.
#define HGP_BF16 0
#include "common/mma.cuh"
#include "common/ptx.cuh"
#include "common/tile_sum.cuh"

constexpr int kM = 139, kN = 132, kK = 1710;
constexpr int kTileM = 32, kTileN = 24, kRanks = 4, kWarps = 8;
constexpr int kSlice = 432;              // K of a CTA
constexpr int kPitch = kSlice * 2 + 16;  // bytes of a row in shared memory
constexpr int kRowsAt = (kTileM + kTileN) * kPitch;
constexpr int kSumRow = kTileN + 8;
constexpr int kPart = kTileM * kSumRow;
using Sum = Meeting<kTileM * kTileN, kRanks>;

__device__ __forceinline__ void copy_word(u32 to, const u16* p, bool inside) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(p), "r"(inside ? 4 : 0) : "memory");
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

extern "C" __global__ void __launch_bounds__(32 * kWarps, 1)
    tiny_139x132x1710_nt_f16(const u16* a, const u16* b, u16* c, int m, int n, int k, int lda, int ldb, int ldc) {
  extern __shared__ __align__(16) u8 smem[];
  __shared__ u64 arrived;

  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, rank = blockIdx.x % kRanks;
  const int tile_row = blockIdx.x / kRanks * kTileM, tile_column = blockIdx.y * kTileN;
  float* const sums = reinterpret_cast<float*>(smem + kRowsAt);
  const Sum meeting{sums + kWarps * kPart, &arrived};

  // Load, each warp: every eighth row, of A and then of B. Rows beyond the last repeat it; zeros
  // follow the last k.
  const int begin = rank * kSlice + 2 * lane;
  const u32 to = smem_address(smem) + warp * kPitch + lane * 4;
  wait_for_upstream();
  allow_dependents();
#pragma unroll
  for (int i = 0; i < (kTileM + kTileN) / kWarps; ++i) {
    const int row = warp + i * kWarps;
    const u16* const p = (i < kTileM / kWarps ? a + (i64)min_of(tile_row + row, kM - 1) * lda
                                              : b + (i64)min_of(tile_column + row - kTileM, kN - 1) * ldb) +
                         begin;
#pragma unroll
    for (int j = 0; j < (kSlice + 63) / 64; ++j) {
      if (j * 64 + 64 > kSlice && lane >= kSlice / 2 % 32) break;
      copy_word(to + i * kWarps * kPitch + j * 128, p + j * 64, begin + j * 64 < kK);
    }
  }
  asm volatile("cp.async.commit_group;" ::: "memory");
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
  asm volatile("cp.async.wait_group 0;" ::: "memory");
  __syncthreads();

  // Multiply, each warp: the tile, every eighth 16 of K.
  float acc[2][3][4] = {};
  const u32 from_a = smem_address(smem) + lane % 16 * kPitch + lane / 16 * 16 + warp * 32;
  const u32 from_b = smem_address(smem) + (kTileM + lane / 16 * 8 + lane % 8) * kPitch + lane / 8 % 2 * 16 + warp * 32;
  const u32 from_last = smem_address(smem) + (kTileM + 16 + lane % 8) * kPitch + lane / 8 % 2 * 16 + warp * 32;
#pragma unroll
  for (int step = 0; step < (kSlice / 16 + kWarps - 1) / kWarps; ++step) {
    if (step * kWarps + kWarps > kSlice / 16 && warp >= kSlice / 16 % kWarps) break;
    const u32 at = step * kWarps * 32;
    u32 x[2][4], y[4], z[2];
    load_matrices(x[0], from_a + at);
    load_matrices(x[1], from_a + 16 * kPitch + at);
    load_matrices(y, from_b + at);
    load_matrices(z, from_last + at);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      mma16816(acc[i][0], x[i][0], x[i][1], x[i][2], x[i][3], y[0], y[1]);
      mma16816(acc[i][1], x[i][0], x[i][1], x[i][2], x[i][3], y[2], y[3]);
      mma16816(acc[i][2], x[i][0], x[i][1], x[i][2], x[i][3], z[0], z[1]);
    }
  }
  meeting.meet();

  // Reduce over the warps, then over the cluster.
  float* const mine = sums + warp * kPart + lane / 4 * kSumRow + lane % 4 * 2;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int j = 0; j < 3; ++j) {
      write_floats<2>(mine + i * 16 * kSumRow + j * 8, {acc[i][j][0], acc[i][j][1]});
      write_floats<2>(mine + (i * 16 + 8) * kSumRow + j * 8, {acc[i][j][2], acc[i][j][3]});
    }
  }
  __syncthreads();
  for (u32 at = threadIdx.x * 2; at < kTileM * kTileN; at += 64 * kWarps) {
    const float* const p = sums + at / kTileN * kSumRow + at % kTileN;
    meeting.send(sum_parts<kWarps, 2>(p, kPart), at, rank);
  }
  meeting.wait();
  if (threadIdx.x < Sum::kShare / 2) {
    const Floats<2> sum = meeting.sum<2>(threadIdx.x * 2);
    const u32 at = rank * Sum::kShare + threadIdx.x * 2;
    const int row = tile_row + at / kTileN, column = tile_column + at % kTileN;
    store_if(row < kM && column < kN, c + (i64)row * ldc + column, pack2(sum.v[0], sum.v[1]));
  }
}
