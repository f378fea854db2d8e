// C[3772,2265] = A^T * B^T, A stored [33,3772], B [2265,33], bf16: 17 MB of C, whose rows begin
// anywhere.
//
// Idea: C decides. A CTA makes 64 rows of 256 columns in one go, three steps of 16 of K, and lays
// the rounded rows into shared memory as far behind a multiple of 16 bytes as each begins in C.
// Whole vectors leave from there, 512 bytes of a row by a warp; only the ends of a row go by
// elements. Three CTAs an SM load, multiply and store in turn.
#define HGP_BF16 1
#include "common/mma.cuh"
#include "common/ptx.cuh"

constexpr int kM = 3772, kN = 2265, kK = 33;
constexpr int kTileM = 64, kTileN = 256, kWarps = 8, kDepth = 48;
constexpr int kPitchA = kTileM * 2 + 16, kPitchB = kDepth * 2 + 16,
              kPitchC = kTileN * 2 + 16;  // bytes
constexpr int kAtB = kDepth * kPitchA, kAtC = kAtB + kTileN * kPitchB;

__device__ __forceinline__ u32 load_element(const u16* p) {
  u32 value;
  asm volatile("ld.global.u16 %0, [%1];" : "=r"(value) : "l"(p) : "memory");
  return value;
}

__device__ __forceinline__ u32 load_pair(const u16* p, bool inside) {
  u32 value = 0;
  asm volatile("{ .reg .pred p;\nsetp.ne.b32 p, %2, 0;\n@p ld.global.u32 %0, [%1]; }"
               : "+r"(value)
               : "l"(p), "r"((u32)inside)
               : "memory");
  return value;
}

__device__ __forceinline__ void store_word(u32 address, u32 value) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}
__device__ __forceinline__ void store_half(u32 address, u32 value) {
  asm volatile("st.shared.u16 [%0], %1;" ::"r"(address), "h"((u16)value) : "memory");
}
__device__ __forceinline__ u16 load_half(u32 address) {
  u16 value;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(value) : "r"(address) : "memory");
  return value;
}

__device__ __forceinline__ void load_matrix4(u32 (&to)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}

// How many elements behind a multiple of 16 bytes.
// In one instruction, for the compiler would take the mask behind a cut to 32 bits, and gates let an
// address be masked, not cut.
__device__ __forceinline__ u32 skew_of(const u16* p) {
  u64 place;
  asm("and.b64 %0, %1, 14;" : "=l"(place) : "l"(p));
  return (u32)place >> 1;
}

extern "C" __global__ void __launch_bounds__(32 * kWarps, 3)
    smallk_3772x2265x33_tt_bf16_masked(const u16* a, const u16* b, u16* c, int m, int n, int k, int lda, int ldb, int ldc) {
  extern __shared__ __align__(16) u8 smem[];
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int tile_row = blockIdx.x * kTileM, tile_column = blockIdx.y * kTileN;
  const u32 at = smem_address(smem);

  // Load, each warp: of B every eighth row, 32 of K; a thread the 33rd of a row. Of A every eighth
  // of K. Rows beyond the last repeat it; zeros follow the last k.
  wait_for_upstream();
  allow_dependents();
  u32 x[kDepth / kWarps], y[kTileN / kWarps];
#pragma unroll
  for (int i = 0; i < kDepth / kWarps; ++i) {
    const int row = warp + kWarps * i;
    x[i] = load_pair(a + (i64)row * lda + min_of(tile_row + 2 * (int)lane, kM - 2), row < kK);
  }
#pragma unroll
  for (int i = 0; i < kTileN / kWarps; ++i) {
    y[i] = load_element(b + (i64)min_of(tile_column + (int)warp + kWarps * i, kN - 1) * ldb + lane);
  }
  const u32 last = load_element(b + (i64)min_of(tile_column + (int)threadIdx.x, kN - 1) * ldb + kK - 1);
#pragma unroll
  for (int i = 0; i < kDepth / kWarps; ++i) store_word(at + (warp + kWarps * i) * kPitchA + lane * 4, x[i]);
#pragma unroll
  for (int i = 0; i < kTileN / kWarps; ++i) store_half(at + kAtB + (warp + kWarps * i) * kPitchB + lane * 2, y[i]);
  store_shared16(at + kAtB + threadIdx.x * kPitchB + 64, {last, 0, 0, 0});
  store_shared16(at + kAtB + threadIdx.x * kPitchB + 80, {0, 0, 0, 0});
  __syncthreads();

  // Multiply, each warp: all rows by 32 columns.
  float acc[4][4][4] = {};
  const u32 from_a = at + (lane / 16 * 8 + lane % 8) * kPitchA + lane / 8 % 2 * 16;
  const u32 from_b = at + kAtB + (warp * 32 + lane / 16 * 8 + lane % 8) * kPitchB + lane / 8 % 2 * 16;
#pragma unroll
  for (int step = 0; step < kDepth / 16; ++step) {
    u32 columns[2][4];
#pragma unroll
    for (int j = 0; j < 2; ++j) load_matrix4(columns[j], from_b + j * 16 * kPitchB + step * 32);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      u32 rows[4];
      load_matrix4_transposed(rows, from_a + step * 16 * kPitchA + i * 32);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        mma16816(acc[i][j], rows[0], rows[1], rows[2], rows[3], columns[j / 2][j % 2 * 2],
                 columns[j / 2][j % 2 * 2 + 1]);
      }
    }
  }

  // Round, each thread: to its row's place in shared memory.
  u16* const out = c + (i64)tile_row * ldc + tile_column;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const u32 row = i * 16 + half * 8 + lane / 4;
      const u32 line = at + kAtC + row * kPitchC + (skew_of(out + (i64)row * ldc) + warp * 32 + lane % 4 * 2) * 2;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const u32 both = pack2(acc[i][j][half * 2], acc[i][j][half * 2 + 1]);
        store_half(line + j * 16, both);
        store_half(line + j * 16 + 2, both >> 16);
      }
    }
  }
  __syncthreads();

  // Store, each warp: every eighth row, a vector a lane, then the up to seven elements at either
  // end.
  const int columns = min_of(kTileN, kN - tile_column);
#pragma unroll
  for (int i = 0; i < kTileM / kWarps; ++i) {
    const int row = warp + kWarps * i;
    u16* const to = out + (i64)row * ldc;
    const int skew = skew_of(to);
    const u32 line = at + kAtC + row * kPitchC;
    const bool there = tile_row + row < kM;
    const int column = 8 * (int)lane - skew;
    store_if(there && column >= 0 && column + 8 <= columns, to + column, load_shared16(line + lane * 16));
    const int head = (u32)(8 - skew) % 8, tail = (u32)(columns + skew) % 8;
    const int end = lane < 8 ? (int)lane : columns - tail + (int)(lane % 8);
    const bool wanted = lane < 8 ? (int)lane < head : lane < 16 && (int)(lane % 8) < tail;
    store_if(there && wanted, to + end, load_half(line + (skew + end) * 2));
  }
}
