// What kernels that share K over CTAs are changes to (`sliced` in corpus.toml; it comes after
// prelude.cuh): each of SLICES CTAs multiplies a part of K for a 64 x 32 tile, four warps of 16
// rows, K in steps of 64 by TMA. All but the first leave their sums in the workspace; the first
// adds them in their order. Layout nn.
#include "common/slice_reduce.cuh"

#define SLICED_PARAMS                                                                       \
  const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b, u16 *c, \
      u32 *words, int m, int n, int k, int ldc

constexpr int kRows = 64, kColumns = 32, kStep = 64;
constexpr int kBlocks = kColumns / 8;  // of a thread's sums, four floats each

// A CTA's part of the work, and where this thread finds its sums in the parts of all slices.
struct Slice {
  int row, column, slice, tile, tiles;
  int first, last;  // steps of K
  u32 *parts;       // slice 0's

  __device__ __forceinline__ Slice(int m, int k, u32 *words) {
    tiles = gridDim.x / SLICES, slice = blockIdx.x / tiles, tile = blockIdx.x % tiles;
    const int down = ceil_div(m, kRows), steps = ceil_div(k, kStep);
    row = tile % down * kRows, column = tile / down * kColumns;
    first = steps * slice / SLICES, last = steps * (slice + 1) / SLICES;
    parts = words + (i64)tile * kRows * kColumns + threadIdx.x * kBlocks * 4;
  }
  __device__ __forceinline__ u32 *part(int i) const {
    return parts + (i64)i * tiles * kRows * kColumns;
  }
};

// This slice's part of K.
__device__ __forceinline__ void sum(float (&acc)[kBlocks][4], const Slice &s,
                                    const TensorMap *map_a, const TensorMap *map_b) {
  __shared__ alignas(128) u16 staged[kRows * kStep + kStep * kColumns];
  __shared__ u64 full;
  if (threadIdx.x == 0) {
    barrier_init(&full, 1);
    barrier_init_fence();
  }
  __syncthreads();
  wait_for_upstream();
  const Problem tile = {
      staged, staged + kRows * kStep, nullptr, kRows, kColumns, kStep, kStep, kColumns, 0};
#pragma unroll 1
  for (int i = s.first; i < s.last; ++i) {
    if (threadIdx.x == 0) {
      barrier_expect(&full, sizeof staged);
      load_box(staged, map_a, &full, i * kStep, s.row, 0);
      load_box(staged + kRows * kStep, map_b, &full, s.column, i * kStep, 0);
    }
    barrier_wait(&full, (i - s.first) % 2);
#pragma unroll 1
    for (int p = 0; p < kStep; p += 16) {
#pragma unroll
      for (int j = 0; j < kBlocks; ++j)
        step(acc[j], tile, threadIdx.x / 32 * 16, 8 * j, p);
    }
    __syncthreads();
  }
}

__device__ __forceinline__ void leave(const float (&acc)[kBlocks][4], u32 *part) {
#pragma unroll
  for (int j = 0; j < kBlocks; ++j) {
    const float *v = acc[j];
    store_part(part + 4 * j, {present(v[0]), present(v[1]), present(v[2]), present(v[3])});
  }
}

__device__ __forceinline__ void add(float (&acc)[4], Vec4 part) {
  acc[0] += __uint_as_float(part.x), acc[1] += __uint_as_float(part.y);
  acc[2] += __uint_as_float(part.z), acc[3] += __uint_as_float(part.w);
}

// Adds the parts of slices `first` to `last` - 1 when they have come, and makes their words absent.
__device__ __forceinline__ void add(float (&acc)[kBlocks][4], const Slice &s, int first, int last) {
#pragma unroll 1
  for (int i = first; i < last; ++i) {
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) {
      Vec4 part = kNothing;
      do {
        load_part(part, s.part(i) + 4 * j, true);
      } while (absent(part));
      add(acc[j], part);
      store_part(s.part(i) + 4 * j, kNothing);
    }
  }
}

__device__ __forceinline__ void store(const float (&acc)[kBlocks][4], const Slice &s, u16 *c, int m,
                                      int n, int ldc) {
  const Problem g = {nullptr, nullptr, c, m, n, 0, 0, 0, ldc};
#pragma unroll
  for (int j = 0; j < kBlocks; ++j)
    store(acc[j], g, s.row + threadIdx.x / 32 * 16, s.column + 8 * j);
}
