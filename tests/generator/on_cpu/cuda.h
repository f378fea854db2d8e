// What device code sees of CUDA, for a host compiler: each thread of a block is one of the host's.
// Matrices of a warp go through what all its lanes have written (st_matrix, ld_matrix, mma16816). bf16 only.
#include <atomic>
#include <barrier>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#define __device__
#define __host__
#define __forceinline__ inline
#define __global__
#define __launch_bounds__(threads)

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
// CTAs of a cluster run at once. A thread knows its own; each has a part of `shared`.
enum { kCtas = 16, kCtaBytes = 1 << 16 };
static thread_local int own_cta;
static std::unique_ptr<std::barrier<>> warps[kCtas][32], block[kCtas], cluster;
static std::unique_ptr<std::barrier<>> named[16];  // each for the 128 threads of a warpgroup
alignas(1024) static uint8_t shared[kCtas * kCtaBytes];

inline void __syncwarp(unsigned = 0) {
  warps[own_cta][threadIdx.x / 32]->arrive_and_wait();
}
inline uint8_t *memory_of_cta() {
  return shared + own_cta * kCtaBytes;
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
  block[own_cta]->arrive_and_wait();
}

// What all lanes of a warp say, to each of them; for lone CTAs, as matrices in shared memory are.
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

inline void wait_for_upstream() {}
inline void allow_dependents() {}

// The products of a warp, as the PTX ISA lays out the fragments of m16n8k16.
static unsigned held[kCtas][1024][6];  // of each thread: four words of A, two of B
inline float widened(unsigned pair, int high) {
  return __uint_as_float((high ? pair >> 16 : pair & 0xffff) << 16);
}
inline void mma16816(float (&acc)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3,
                     unsigned b0, unsigned b1) {
  const int lane = threadIdx.x % 32;
  const unsigned own[6] = {a0, a1, a2, a3, b0, b1};
  memcpy(held[own_cta][threadIdx.x], own, sizeof own);
  __syncwarp();
  const auto *lanes = held[own_cta] + threadIdx.x - lane;
  for (int i = 0; i < 4; ++i)
    for (int k = 0; k < 16; ++k) {
      const unsigned *a = lanes[lane / 4 * 4 + k % 8 / 2];
      const unsigned *b = lanes[(lane % 4 * 2 + i % 2) * 4 + k % 8 / 2];
      acc[i] += widened(a[k / 8 * 2 + i / 2], k % 2) * widened(b[4 + k / 8], k % 2);
    }
  __syncwarp();
}

// --- what CTAs of a cluster send each other: one barrier in each, which counts bytes ---

static std::atomic<int> landed[kCtas];
static int expected[kCtas];
static thread_local std::optional<std::barrier<>::arrival_token> arrival;
inline void cluster_arrive() {
  arrival = cluster->arrive();
}
inline void cluster_wait() {
  cluster->wait(std::move(*arrival));
}
inline void barrier_init(unsigned long long *, unsigned) {}
inline void barrier_init_fence() {}
inline void barrier_expect(unsigned long long *, unsigned bytes) {
  expected[own_cta] = (int)bytes;
}
inline unsigned remote_address(unsigned address, unsigned rank) {
  return address % kCtaBytes + rank * kCtaBytes;
}
inline void send8(unsigned to, unsigned barrier, const float *v) {
  memcpy(shared + to, v, 8);
  landed[barrier / kCtaBytes] += 8;
}
inline void barrier_wait_cluster(unsigned long long *, unsigned) {
  while (landed[own_cta] < expected[own_cta])
    std::this_thread::yield();
}

// --- running a cluster, or a CTA alone ---

inline void run_cluster(int ctas, int threads, const std::function<void()> &work) {
  std::vector<std::thread> all;
  cluster = std::make_unique<std::barrier<>>(ctas * threads);
  for (int cta = 0; cta < ctas; ++cta) {
    landed[cta] = 0;
    block[cta] = std::make_unique<std::barrier<>>(threads);
    for (int w = 0; w < threads / 32; ++w)
      warps[cta][w] = std::make_unique<std::barrier<>>(32);
  }
  for (auto &one : named)
    one = std::make_unique<std::barrier<>>(128);
  for (int t = 0; t < ctas * threads; ++t)
    all.emplace_back([&, t] {
      own_cta = t / threads;
      threadIdx = {(unsigned)(t % threads), 0, 0};
      work();
    });
  for (auto &one : all)
    one.join();
}
inline void run_block(int threads, const std::function<void()> &work) {
  run_cluster(1, threads, work);
}
