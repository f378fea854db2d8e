// C[4,12841] = A[4,14741] * B^T, bf16: four tokens, weights whose rows begin at any multiple of 2
// bytes.
//
// Idea: as decode_4x12841x14741_nt_bf16, aligned vectors of 16 bytes straight into the fragments of
// an mma, whose 16 rows lie 8 apart and so share one shift of K. There the tokens took the shift,
// and the sum's order with it: B at another place gave other bits. Here the weights take it. A
// vector's end and the beginning of the next, which the next lane has, make the 8 elements that
// begin at a multiple of 8 of K. The ends of the rows, where vectors would reach over them, are
// loaded by elements. A cluster of eight splits K.
#define HGP_BF16 1
#include "common/mma.cuh"
#include "common/ptx.cuh"
#include "common/tile_sum.cuh"

constexpr int kM = 4, kN = 12841, kK = 14741;
constexpr int kWarps = 8;            // one for each place that a row may begin at
constexpr int kRanks = 8;            // CTAs that share a tile by K
constexpr int kBlocks = 2;           // m16 blocks of weights a warp
constexpr int kRows = 16 * kBlocks;  // rows of B a warp, 8 apart
constexpr int kTileN = kWarps * kRows;
constexpr int kTurn = 3;    // chunks of 32 k in a turn
constexpr int kTurns = 19;  // of a CTA: all of them together have the whole chunks 1 to 456
constexpr int kEdge = 1 + kRanks * kTurn * kTurns;  // first chunk behind these
constexpr int kChunks = (kK + 31) / 32;

using Sum = Meeting<kTileN * kM, kRanks>;

__device__ __forceinline__ void load_vector(u32 (&to)[4], const u16 *p, u64 policy) {
  asm volatile("ld.global.L1::no_allocate.L2::cache_hint.L2::256B.v4.u32 {%0,%1,%2,%3}, [%4], %5;"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "l"(p), "l"(policy)
               : "memory");
}

__device__ __forceinline__ u32 load_one(const u16 *p) {
  u32 value;
  asm volatile("ld.global.u16 %0, [%1];" : "=r"(value) : "l"(p) : "memory");
  return value;
}

__device__ __forceinline__ u32 load_if(const u16 *p, bool inside) {
  u32 value = 0;
  asm volatile("{ .reg .pred p;\nsetp.ne.b32 p, %2, 0;\n@p ld.global.u16 %0, [%1]; }"
               : "+r"(value)
               : "l"(p), "r"((u32)inside)
               : "memory");
  return value;
}

__device__ __forceinline__ void multiply(float (&acc)[kBlocks][4], const u32 (&w)[kBlocks][2][4],
                                         const u32 (&x)[4]) {
#pragma unroll
  for (int step = 0; step < 2; ++step) {
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
      mma16816(acc[i], w[i][0][2 * step], w[i][1][2 * step], w[i][0][2 * step + 1],
               w[i][1][2 * step + 1], x[2 * step], x[2 * step + 1]);
    }
  }
}

// Eight elements, `shift` behind the beginning of `own`: the next vector of the row is the next
// lane's, or of the last lane the first lane's `ahead`.
__device__ __forceinline__ void join(u32 (&own)[4], const u32 (&ahead)[4], int shift, u32 q) {
  u32 both[8];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    both[i] = own[i];
    both[4 + i] = __shfl_sync(0xffffffff, q == 0 ? ahead[i] : own[i], (q + 1) % 4, 4);
  }
#pragma unroll
  for (int i = 0; i < 6; ++i)
    both[i] = shift & 4 ? both[i + 2] : both[i];
#pragma unroll
  for (int i = 0; i < 5; ++i)
    both[i] = shift & 2 ? both[i + 1] : both[i];
#pragma unroll
  for (int i = 0; i < 4; ++i)
    own[i] = shift & 1 ? __byte_perm(both[i], both[i + 1], 0x5432) : both[i];
}

extern "C" __global__ void __launch_bounds__(32 * kWarps, 2)
    decode_4x12841x14741_nt_bf16_shifted(const u16 *a, const u16 *b, u16 *c, int m, int n, int k,
                                         int lda, int ldb, int ldc) {
  __shared__ __align__(16) float inbox[kTileN * kM];
  __shared__ u64 arrived;

  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, q = lane % 4,
            rank = blockIdx.x % kRanks;
  const Sum meeting{inbox, &arrived};
  meeting.announce();
  const int first = blockIdx.y * kTileN + warp;  // row of B, then every eighth
  // Elements from a multiple of 16 bytes to where each of these rows begins.
  const int shift = (int)((u64)(b + (i64)first * ldb) >> 1 & 7);
  u64 policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));

  // Rows beyond the last repeat it, or rather one of their kind does: their sums are not stored.
  const int last = kN - 8 + (int)((warp + 8 - kN % 8) % 8);
  const u16 *rows[kBlocks][2];
#pragma unroll
  for (int i = 0; i < kBlocks; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      rows[i][half] = b + (i64)min_of(first + 8 * (16 * i + 8 * half + (int)g), last) * ldb;
    }
  }
  wait_for_upstream();
  allow_dependents();
  const u16 *const token = a + (i64)(g % kM) * lda;

  float acc[kBlocks][4] = {};
  // Vector q of a chunk begins `shift` elements before the eight that this thread multiplies.
  const int begin = (1 + (int)rank * kTurn * kTurns) * 32 + 8 * (int)q;
  u32 w[kTurn + 1][kBlocks][2][4];
#pragma unroll
  for (int i = 0; i < kBlocks; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half)
      load_vector(w[0][i][half], rows[i][half] + begin - shift, policy);
  }
  int at = begin;
#pragma unroll 1
  for (int turn = 0; turn < kTurns; ++turn) {
    u32 x[kTurn][4];
#pragma unroll
    for (int u = 1; u <= kTurn; ++u) {
#pragma unroll
      for (int i = 0; i < kBlocks; ++i) {
        load_vector(w[u][i][0], rows[i][0] + at - shift + 32 * u, policy);
        load_vector(w[u][i][1], rows[i][1] + at - shift + 32 * u, policy);
      }
    }
#pragma unroll
    for (int u = 0; u < kTurn; ++u) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const u16 *p = token + at + 32 * u + 2 * i;
        x[u][i] = __byte_perm(load_one(p), load_one(p + 1), 0x5410);
      }
    }
#pragma unroll
    for (int u = 0; u < kTurn; ++u) {
#pragma unroll
      for (int i = 0; i < kBlocks; ++i) {
#pragma unroll
        for (int half = 0; half < 2; ++half)
          join(w[u][i][half], w[u + 1][i][half], shift, q);
      }
      multiply(acc, w[u], x[u]);
    }
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int e = 0; e < 4; ++e)
          w[0][i][half][e] = w[kTurn][i][half][e];
      }
    }
    at += 32 * kTurn;
  }

  // The first chunk and the last, by elements: a CTA each.
  if (rank <= kChunks - kEdge) {
    const int here = (rank == 0 ? 0 : kEdge - 1 + (int)rank) * 32 + 8 * (int)q;
    u32 x[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int low = here + 2 * i, high = low + 1;
      const bool in_low = low < kK, in_high = high < kK;
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const u16 *p = rows[block][half] + low;
          w[0][block][half][i] = __byte_perm(load_if(p, in_low), load_if(p + 1, in_high), 0x5410);
        }
      }
      x[i] = __byte_perm(load_if(token + low, in_low), load_if(token + high, in_high), 0x5410);
    }
    multiply(acc, w[0], x);
  }

  // Reduce over the cluster: of the eight columns of an mma four are tokens. Elements are counted
  // column of C by column, four tokens each, so that an owner's are its columns.
  meeting.meet();
  if (q < kM / 2) {
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const u32 column = 8 * (16 * i + 8 * half + g) + warp;
        meeting.send(Floats<2>{acc[i][2 * half], acc[i][2 * half + 1]}, column * kM + 2 * q, rank);
      }
    }
  }
  meeting.wait();
  if (threadIdx.x < Sum::kShare / 2) {
    const Floats<2> sum = meeting.sum<2>(2 * threadIdx.x);
    const int column = blockIdx.y * kTileN + (rank * Sum::kShare + 2 * threadIdx.x) / kM;
    const u32 t = 2 * threadIdx.x % kM;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      store_if(column < kN, c + (i64)(t + i) * ldc + column, (u16)pack2(sum.v[i], 0.0f));
    }
  }
}
