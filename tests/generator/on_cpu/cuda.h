// What device code sees of CUDA, for a host compiler: each thread of a block is one of the host's.
// Matrices of a warp go through what all its lanes have written (st_matrix, ld_matrix). bf16 only.
#include <barrier>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#define __device__
#define __host__
#define __forceinline__ inline

struct Dim {
  unsigned x, y, z;
};
struct float2 {
  float x, y;
};
struct float4 {
  float x, y, z, w;
};
struct uint2 {
  unsigned x, y;
};
struct uint4 {
  unsigned x, y, z, w;
};
struct Vec4;

static thread_local Dim threadIdx, blockIdx;
static Dim gridDim;
static std::unique_ptr<std::barrier<>> warps[32], block;
static std::unique_ptr<std::barrier<>> named[16];  // each for the 128 threads of a warpgroup
alignas(1024) static uint8_t shared[1 << 20];

inline void __syncwarp(unsigned = 0) {
  warps[threadIdx.x / 32]->arrive_and_wait();
}
inline void named_sync(int id, int threads) {
  if (threads != 128) abort();
  named[id]->arrive_and_wait();
}
inline int __shfl_sync(unsigned, int v, int) {
  return v;
}
inline unsigned __activemask() {
  return ~0u;
}
inline float __uint_as_float(unsigned v) {
  float f;
  memcpy(&f, &v, 4);
  return f;
}
inline unsigned __float_as_uint(float f) {
  unsigned v;
  memcpy(&v, &f, 4);
  return v;
}
inline int __float_as_int(float f) {
  return (int)__float_as_uint(f);
}
inline float __fdividef(float a, float b) {
  return a / b;
}
inline float __fmaf_rn(float a, float b, float c) {
  return fmaf(a, b, c);
}
inline float __fadd_rz(float a, float b) {
  return a + b;
}
inline unsigned min(unsigned a, unsigned b) {
  return a < b ? a : b;
}
inline unsigned max(unsigned a, unsigned b) {
  return a > b ? a : b;
}
inline float2 make_float2(float x, float y) {
  return {x, y};
}
inline float4 make_float4(float x, float y, float z, float w) {
  return {x, y, z, w};
}
inline uint2 make_uint2(unsigned x, unsigned y) {
  return {x, y};
}
inline int min(int a, int b) {
  return a < b ? a : b;
}
inline int max(int a, int b) {
  return a > b ? a : b;
}
inline void __syncthreads() {
  block->arrive_and_wait();
}

// What all lanes of a warp say, to each of them.
static unsigned spoken[1024];
inline const unsigned *hear(unsigned v) {
  static thread_local unsigned heard[32];
  spoken[threadIdx.x] = v;
  __syncwarp();
  memcpy(heard, spoken + threadIdx.x / 32 * 32, sizeof heard);
  __syncwarp();
  return heard;
}
inline unsigned __ballot_sync(unsigned, bool yes) {
  const unsigned *heard = hear(yes);
  unsigned all = 0;
  for (int lane = 0; lane < 32; ++lane)
    all |= heard[lane] << lane;
  return all;
}
inline int __shfl_up_sync(unsigned, int v, int distance) {
  const int lane = threadIdx.x % 32;
  return (int)hear((unsigned)v)[lane >= distance ? lane - distance : lane];
}
inline int __reduce_add_sync(unsigned, int v) {
  const unsigned *heard = hear((unsigned)v);
  unsigned sum = 0;
  for (int lane = 0; lane < 32; ++lane)
    sum += heard[lane];
  return (int)sum;
}
inline int __popc(unsigned v) {
  return __builtin_popcount(v);
}
// Of eight bytes the four that the digits of `places` name, the lowest first.
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned places) {
  unsigned v = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned from = places >> 4 * i & 7;
    v |= ((from < 4 ? low : high) >> from % 4 * 8 & 255) << 8 * i;
  }
  return v;
}

// --- in place of what is written in PTX ---

inline unsigned smem_address(const void *p) {
  return (unsigned)((const uint8_t *)p - shared);
}
inline uint16_t rounded(float f) {
  const unsigned v = __float_as_uint(f);
  return (uint16_t)((v + 0x7fff + (v >> 16 & 1)) >> 16);
}
inline unsigned pack2(float low, float high) {
  return rounded(low) | (unsigned)rounded(high) << 16;
}

static unsigned addresses[1024], words[1024][4];  // of each thread

inline void st_matrix(int count, bool transposed, unsigned address, const unsigned *from) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x - lane;
  addresses[threadIdx.x] = address;
  __syncwarp();
  for (int i = 0; i < count; ++i)
    for (int e = 0; e < 2; ++e) {
      const int row = lane / 4, column = lane % 4 * 2 + e;
      const uint16_t v = (uint16_t)(from[i] >> 16 * e);
      memcpy(shared + addresses[warp + 8 * i + (transposed ? column : row)] +
                 2 * (transposed ? row : column),
             &v, 2);
    }
  __syncwarp();
}
inline void ld_matrix(int count, bool transposed, unsigned address, unsigned *to) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x - lane;
  addresses[threadIdx.x] = address;
  __syncwarp();
  for (int i = 0; i < count; ++i) {
    to[i] = 0;
    for (int e = 0; e < 2; ++e) {
      const int row = lane / 4, column = lane % 4 * 2 + e;
      uint16_t v;
      memcpy(&v,
             shared + addresses[warp + 8 * i + (transposed ? column : row)] +
                 2 * (transposed ? row : column),
             2);
      to[i] |= (unsigned)v << 16 * e;
    }
  }
  __syncwarp();
}
inline void store_matrix4(unsigned at, unsigned a, unsigned b, unsigned c, unsigned d) {
  const unsigned from[4] = {a, b, c, d};
  st_matrix(4, false, at, from);
}
inline void store_matrix4_transposed(unsigned at, unsigned a, unsigned b, unsigned c, unsigned d) {
  const unsigned from[4] = {a, b, c, d};
  st_matrix(4, true, at, from);
}
inline void store_matrix2_transposed(unsigned at, unsigned a, unsigned b) {
  const unsigned from[2] = {a, b};
  st_matrix(2, true, at, from);
}
inline void store_matrix1_transposed(unsigned at, unsigned a) {
  st_matrix(1, true, at, &a);
}
inline void load_matrix4_transposed(unsigned (&to)[4], unsigned at) {
  ld_matrix(4, true, at, to);
}
inline void load_matrix2_transposed(unsigned (&to)[2], unsigned at) {
  ld_matrix(2, true, at, to);
}
inline int quick_quotient(int a, int b) {
  return a / b;
}
inline int load_end(const int *ends, int m) {
  return max(0, min(*ends, m));
}
static thread_local unsigned own_rank;
inline unsigned cluster_rank() {
  return own_rank;
}
// A box leaves for C at once, so that nothing is still read: whoever stores it alone says where it goes.
static std::function<void(const uint8_t *, int, int)> take_box;
inline void wait_for_reads() {}
inline void proxy_fence() {}
inline void store_commit() {}
inline void store_wait_all() {}
inline void copy16(unsigned to, const uint16_t *from, bool inside) {
  if (inside)
    memcpy(shared + to, from, 16);
  else
    memset(shared + to, 0, 16);
}
template <int bytes>
inline void copy_some(unsigned to, const uint16_t *from, int count) {
  memcpy(shared + to, from, count);
  memset(shared + to + count, 0, bytes - count);
}
inline unsigned load_element(const uint16_t *p, bool inside) {
  return inside ? *p : 0;
}
inline unsigned load_element(const uint8_t *p, int at, int end) {
  uint16_t v = 0;
  if (at < end) memcpy(&v, p, 2);
  return v;
}
inline void store_shared4(unsigned to, unsigned v) {
  memcpy(shared + to, &v, 4);
}
inline unsigned load_shared4(unsigned from) {
  unsigned v;
  memcpy(&v, shared + from, 4);
  return v;
}
inline uint16_t load_shared2(unsigned from) {
  uint16_t v;
  memcpy(&v, shared + from, 2);
  return v;
}

// --- running a block ---

inline void run_block(int threads, const std::function<void()> &work) {
  std::vector<std::thread> all;
  block = std::make_unique<std::barrier<>>(threads);
  for (int w = 0; w < threads / 32; ++w)
    warps[w] = std::make_unique<std::barrier<>>(32);
  for (auto &one : named)
    one = std::make_unique<std::barrier<>>(128);
  for (int t = 0; t < threads; ++t)
    all.emplace_back([&, t] {
      threadIdx = {(unsigned)t, 0, 0};
      work();
    });
  for (auto &one : all)
    one.join();
}
