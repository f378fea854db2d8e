// C[4096,1024] = A[4096,128] * B[128,1024], bf16: 8 MB of C from a K of 128.
//
// Idea: C decides, and it cannot leave before the first products. 256 tiles of 128 x 128, two CTAs
// an SM that do the same at their own pace: no roles, no maps, no barriers in memory. Half of K is
// asked for before the other half, and is multiplied while that comes. Each warp rounds its 32 x 64
// and stores them by itself, 128 bytes of a row at a time.
#define HGP_BF16 1
#include "common/mma.cuh"
#include "common/ptx.cuh"

constexpr int kTile = 128, kDepth = 128, kWarps = 8;
constexpr int kPitch = kTile * 2 + 16;  // bytes of a row of A or B in shared memory
constexpr int kAtB = kTile * kPitch, kAtC = kAtB + kDepth * kPitch;
constexpr int kPitchC = 64 * 2 + 16, kWarpC = 32 * kPitchC;

__device__ __forceinline__ void copy16(u32 to, const u16* p) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(p) : "memory");
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

extern "C" __global__ void __launch_bounds__(32 * kWarps, 2)
    smallk_4096x1024x128_nn_bf16(const u16* a, const u16* b, u16* c, int m, int n, int k, int lda, int ldb, int ldc) {
  extern __shared__ __align__(16) u8 smem[];
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const u32 tile_row = blockIdx.x * kTile, tile_column = blockIdx.y * kTile;
  const u32 at = smem_address(smem);

  // Load, all threads: 64 of K, then the other 64.
  wait_for_upstream();
  allow_dependents();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const u32 unit = threadIdx.x + 256 * i, row = unit / 8, column = half * 64 + unit % 8 * 8;
      copy16(at + row * kPitch + column * 2, a + (i64)(tile_row + row) * lda + column);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const u32 unit = threadIdx.x + 256 * i, row = half * 64 + unit / 16, column = unit % 16 * 8;
      copy16(at + kAtB + row * kPitch + column * 2, b + (i64)row * ldb + tile_column + column);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  }

  // Multiply, each warp: 32 rows by 64 columns.
  float acc[2][8][4] = {};
  const u32 warp_m = warp % 4 * 32, warp_n = warp / 4 * 64;
  const u32 from_a = at + (warp_m + lane % 16) * kPitch + lane / 16 * 16;
  const u32 from_b = at + kAtB + (lane / 8 % 2 * 8 + lane % 8) * kPitch + warp_n * 2 + lane / 16 * 16;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (half == 0) {
      asm volatile("cp.async.wait_group 1;" ::: "memory");
    } else {
      asm volatile("cp.async.wait_group 0;" ::: "memory");
    }
    __syncthreads();
#pragma unroll
    for (int step = half * 4; step < half * 4 + 4; ++step) {
      u32 x[2][4];
#pragma unroll
      for (int i = 0; i < 2; ++i) load_matrix4(x[i], from_a + i * 16 * kPitch + step * 32);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        u32 y[4];
        load_matrix4_transposed(y, from_b + step * 16 * kPitch + j * 32);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          mma16816(acc[i][2 * j], x[i][0], x[i][1], x[i][2], x[i][3], y[0], y[1]);
          mma16816(acc[i][2 * j + 1], x[i][0], x[i][1], x[i][2], x[i][3], y[2], y[3]);
        }
      }
    }
  }

  // Store, each warp: its rows by way of shared memory of its own, whole lines of 128 bytes.
  const u32 own = at + kAtC + warp * kWarpC;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const u32 to = own + (i * 16 + lane / 4) * kPitchC + j * 16 + lane % 4 * 4;
      store_word(to, pack2(acc[i][j][0], acc[i][j][1]));
      store_word(to + 8 * kPitchC, pack2(acc[i][j][2], acc[i][j][3]));
    }
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const u32 row = i * 4 + lane / 8, column = lane % 8 * 8;
    store_global16<false>(c + (i64)(tile_row + warp_m + row) * ldc + tile_column + warp_n + column,
                          load_shared16(own + row * kPitchC + column * 2));
  }
}
