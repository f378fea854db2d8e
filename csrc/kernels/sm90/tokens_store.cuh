// The stores of sm90_tokens: from the accumulators of 64 rows of weights by a tile of tokens to rows of C, which are
// tokens. Turned round by stmatrix on their way through shared memory. A part of tokens.cuh, behind its constants.
#pragma once

// How C is staged, in units of 16 bytes: by each warp for itself, its 16 columns, or 64 columns by a whole warpgroup.
constexpr bool kWhole = !HGP_EPILOGUE_STAGED;
constexpr int kTogether = kWhole ? 128 : 32;                               // threads that store together
constexpr int kOwnUnits = HGP_OF_C(16) / 8;                                // of a token, made by one warp
constexpr int kUnits = kTogether / 32 * kOwnUnits;                         // of a token
constexpr int kChunk = HGP_EPILOGUE_BULK ? kTokens : min_of(kTokens, 64);  // tokens that are staged at a time
constexpr int kBuffers = HGP_BUFFERS;
constexpr int kBufferBytes = kChunk * kUnits * 16;
constexpr int kGroup = 8 * kUnits * 16;  // bytes of 8 tokens

// Store: where unit `unit` of a staged token lies. Of eight tokens the same unit lies in different banks, and a
// warpgroup's rows of 128 bytes are as the map of C reads them.
__device__ __forceinline__ u32 place(u32 staging, int token, int unit) {
  return staging + (token * kUnits + (unit ^ (token * kUnits / 8 % kUnits))) * 16;
}

// Store: the first of a token's units that this warp makes.
__device__ __forceinline__ int own_unit() { return kWhole ? threadIdx.x / 32 % 4 * kOwnUnits : 0; }

// Store: of four matrices of 8 x 8, two of 8 tokens and two of the next 8, the row whose address this lane gives. It
// lies kGroup bytes further in each next group of 8 tokens.
__device__ __forceinline__ u32 matrix_row(u32 staging) {
  const int lane = threadIdx.x % 32;
  return place(staging, lane / 16 * 8 + lane % 8, own_unit() + lane / 8 % 2);
}

// Store: each consumer warp. Rounds its 16 rows of weights of kCount tokens, turns them round and stages them.
template <int kFirst, int kCount>
__device__ __forceinline__ void stage_tokens(const float (&acc)[kTokens / 2], u32 staging) {
#ifdef HGP_GATE
  const int lane = threadIdx.x % 32;
  // The rows of the gate come first, so that a thread has both. The lane gives the address of a row of one of the 8 x 8
  // matrices: a token.
  constexpr int kMatrices = kCount / 8;
  constexpr int kLast = kMatrices / 4 * 4;  // the first that is not stored with three others
  u32 pairs[kMatrices];
#pragma unroll
  for (int j = 0; j < kMatrices; ++j) {
    const float* v = &acc[kFirst / 2 + j * 4];
    pairs[j] = pack2(HGP_GATE(v[0]) * v[2], HGP_GATE(v[1]) * v[3]);
  }
#pragma unroll
  for (int j = 0; j < kLast; j += 4) {
    store_matrix4_transposed(place(staging, j * 8 + lane, own_unit()), pairs[j], pairs[j + 1], pairs[j + 2],
                             pairs[j + 3]);
  }
  if constexpr (kMatrices % 4 >= 2) {
    store_matrix2_transposed(place(staging, kLast * 8 + lane % 16, own_unit()), pairs[kLast], pairs[kLast + 1]);
  }
  if constexpr (kMatrices % 2 != 0) {
    store_matrix1_transposed(place(staging, kCount - 8 + lane % 8, own_unit()), pairs[kMatrices - 1]);
  }
#else
  const u32 at = matrix_row(staging);
#pragma unroll
  for (int j = 0; j + 1 < kCount / 8; j += 2) {
    const float* v = &acc[kFirst / 2 + j * 4];
    store_matrix4_transposed(at + j * kGroup, pack2(v[0], v[1]), pack2(v[2], v[3]), pack2(v[4], v[5]),
                             pack2(v[6], v[7]));
  }
  if constexpr (kCount % 16 != 0) {
    const float* v = &acc[kFirst / 2 + kCount / 2 - 4];
    store_matrix2_transposed(at + (kCount / 8 - 1) * kGroup, pack2(v[0], v[1]), pack2(v[2], v[3]));
  }
#endif
}

#if HGP_RESIDUAL
// Store: each consumer warp. Adds the residual of kCount tokens, from `token` on, to its 16 columns, from `column` on.
// It comes through the places where this warp stages them afterwards, turned round as C is.
template <int kFirst, int kCount>
__device__ __forceinline__ void add_residual(float (&acc)[kTokens / 2], const u16* addend, u32 staging, int token,
                                             int column, int m, int n) {
#pragma unroll
  for (int first = 0; first < kCount * 2; first += 32) {
    const int unit = first + threadIdx.x % 32;
    const int at = token + kFirst + unit / 2, from = column + unit % 2 * 8;
    Vec4 v = {0, 0, 0, 0};
    if (unit < kCount * 2 && at < m && from < n) v = load_global16(addend + (i64)at * n + from);
    if (unit < kCount * 2) store_shared16(place(staging, unit / 2, own_unit() + unit % 2), v);
  }
  __syncwarp();
  const u32 at = matrix_row(staging);
  const auto add = [](float* v, u32 pair) {
    v[0] = finish_sum(v[0], widen((u16)pair));
    v[1] = finish_sum(v[1], widen((u16)(pair >> 16)));
  };
#pragma unroll
  for (int j = 0; j + 1 < kCount / 8; j += 2) {
    u32 pairs[4];
    load_matrix4_transposed(pairs, at + j * kGroup);
#pragma unroll
    for (int i = 0; i < 4; ++i) add(&acc[kFirst / 2 + j * 4 + i * 2], pairs[i]);
  }
  if constexpr (kCount % 16 != 0) {
    u32 pairs[2];
    load_matrix2_transposed(pairs, at + (kCount / 8 - 1) * kGroup);
#pragma unroll
    for (int i = 0; i < 2; ++i) add(&acc[kFirst / 2 + kCount / 2 - 4 + i * 2], pairs[i]);
  }
  __syncwarp();
}
#define HGP_ADD(kFirst, kCount) \
  add_residual<kFirst, kCount>(acc, addend, staged, token, column + (kWhole ? threadIdx.x / 32 % 4 * 16 : 0), m, n)
#elif defined(HGP_ACTIVATION)
// Store: each consumer warp. The thread's two columns of C, 8 apart, of the warp's 16 from `column` on, for as many
// tokens as are staged together: of all at once more is under way than there are registers for.
template <int kFirst, int kCount>
__device__ __forceinline__ void add_bias(float (&acc)[kTokens / 2], const u16* bias, int column, int n) {
  const int first = column + threadIdx.x % 32 / 4;
  const Addend<1> low(bias, first, n), high(bias, first + 8, n);
#pragma unroll
  for (int i = kFirst / 2; i < (kFirst + kCount) / 2; ++i)
    acc[i] = finish_sum(acc[i], i % 4 < 2 ? low.v[0] : high.v[0]);
}
#define HGP_ADD(kFirst, kCount) \
  add_bias<kFirst, kCount>(acc, addend, column + (kWhole ? threadIdx.x / 32 % 4 * 16 : 0), n)
#else
#define HGP_ADD(kFirst, kCount)
#endif

// Store: the thread that stores in bulk. The buffer that is written next has been read.
__device__ __forceinline__ void wait_for_reads() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kBuffers - 1) : "memory");
}

#if HGP_EPILOGUE_BULK
#define HGP_TO_C , &map_c
#if HGP_BATCHED
#define HGP_C , const TensorMap *map_c, int of
#else
#define HGP_C , const TensorMap* map_c
#endif
#else
#define HGP_TO_C , c, ldc
#define HGP_C , u16 *c, int ldc
#endif

// What a kernel of many products is told of them, and where C and residual of its tile's product are.
#if HGP_BATCHED
#define HGP_BATCHES , int batches
#define HGP_GIVE_BATCHES , batches
#if HGP_EPILOGUE_BULK
#define HGP_TO_C_OF_TILE , &map_c, at.of
#else
#define HGP_TO_C_OF_TILE , c + (i64)at.of * m * ldc, ldc
#endif
#else
#define HGP_BATCHES
#define HGP_GIVE_BATCHES
#define HGP_TO_C_OF_TILE HGP_TO_C
#endif
#if HGP_BATCHED && HGP_RESIDUAL
#define HGP_ADDEND_OF_TILE , addend + (i64)at.of * m * n
#else
#define HGP_ADDEND_OF_TILE HGP_GIVE_ADDEND
#endif

// Store: all of a warpgroup, or with staging by warps each warp. A block of weights, from `column` of the product on, to
// the tile's tokens of C from kFirst on, kChunk at a time. `turn` counts what went through the buffers of `staging`.
template <int kFirst = 0>
__device__ __forceinline__ void store_block(float (&acc)[kTokens / 2], u8* staging, u32& turn, int barrier, int token,
                                            int column, int m, int n HGP_C HGP_ADDEND) {
  constexpr int kCount = min_of(kChunk, kTokens - kFirst);
  u8* const buffer = staging + (kBuffers > 1 ? turn++ % kBuffers * kBufferBytes : 0);
  const u32 staged = smem_address(buffer);
#if HGP_EPILOGUE_BULK
  const bool issues = threadIdx.x % 128 == 0;
  if (issues) wait_for_reads();
  named_sync(barrier, 128);
#else
  // With two buffers, whoever has come past the barrier below has read the other one.
  if (kWhole && kBuffers == 1) named_sync(barrier, 128);
#endif
  HGP_ADD(kFirst, kCount);
  stage_tokens<kFirst, kCount>(acc, staged);
#if HGP_EPILOGUE_BULK
  proxy_fence();
  named_sync(barrier, 128);
  if (issues) {
#if HGP_BATCHED
    store_box_of<HGP_STREAMING>(map_c, buffer, column, token, of);
#else
    store_box<HGP_STREAMING>(map_c, buffer, column, token);
#endif
    store_commit();
  }
#else
  if (kWhole) named_sync(barrier, 128);
  if (!kWhole) __syncwarp();
#pragma unroll
  for (int first = 0; first < kCount * kUnits; first += kTogether) {
    const int unit = first + threadIdx.x % kTogether;
    const int at = token + kFirst + unit / kUnits, to = HGP_OF_C(column) + unit % kUnits * 8;
    if (unit < kCount * kUnits && at < m && to < HGP_OF_C(n)) {
      store_global16<HGP_STREAMING>(c + (i64)at * ldc + to, load_shared16(place(staged, unit / kUnits, unit % kUnits)));
    }
  }
  if (!kWhole) __syncwarp();
#endif
  if constexpr (kFirst + kCount < kTokens) {
    store_block<kFirst + kCount>(acc, staging, turn, barrier, token, column, m, n HGP_TO_C HGP_GIVE_ADDEND);
  }
}
