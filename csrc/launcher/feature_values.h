// What trees see of a problem and a kernel; the one implementation, for fitting and for choosing.
#ifndef HGP_FEATURE_VALUES_H
#define HGP_FEATURE_VALUES_H

#include <stdint.h>

// Of a problem alone: all that the model of torch sees. X(name, whether it only grows with M, or
// only falls, or stays).
#define PROBLEM_FEATURES(X) \
  X(log2_m, 1)              \
  X(log2_n, 1)              \
  X(log2_k, 1)              \
  X(log2_flop, 1)           \
  X(log2_bytes, 1)          \
  X(log2_floor, 1)          \
  X(log2_mn, 1)             \
  X(log2_m_over_n, 1)       \
  X(log2_k_over_side, 1)    \
  X(log2_intensity, 1)      \
  X(a_transposed, 1)        \
  X(b_transposed, 1)        \
  X(bf16, 1)                \
  X(log2_row_bytes, 0)      \
  X(log2_a_bytes, 0)        \
  X(log2_b_bytes, 1)        \
  X(log2_c_bytes, 1)        \
  X(fill_m_64, 0)           \
  X(fill_n_64, 1)           \
  X(use_64x128, 0)          \
  X(use_128x128, 0)         \
  X(use_128x256, 0)         \
  X(use_256x128, 0)

// Of a kernel on a problem.
#define KERNEL_FEATURES(X)       \
  X(family, 1)                   \
  X(tile_m, 1)                   \
  X(tile_n, 1)                   \
  X(tile_k, 1)                   \
  X(stages, 1)                   \
  X(cluster_m, 1)                \
  X(cluster_n, 1)                \
  X(parts_of_k, 1)               \
  X(slices, 1)                   \
  X(persistent, 1)               \
  X(threads, 1)                  \
  X(ctas_per_sm, 1)              \
  X(log2_ctas, 1)                \
  X(waves, 1)                    \
  X(wave_use, 0)                 \
  X(fill, 0)                     \
  X(use, 0)                      \
  X(log2_steps, 1)               \
  X(log2_sm_bytes, 1)            \
  X(log2_sm_flop, 1)             \
  X(cluster_k, 1)                \
  X(a_bytes, 1)                  \
  X(b_bytes, 1)                  \
  X(c_bytes, 1)                  \
  X(pingpong, 1)                 \
  X(wide, 1)                     \
  X(smem_bytes, 1)               \
  X(outputs_a_thread, 1)         \
  X(filled_waves, 1)             \
  X(log2_compute_over_floor, 0)  \
  X(log2_sm_bytes_over_floor, 0) \
  X(log2_traffic_over_floor, 0)  \
  X(raster_n, 1)                 \
  X(group, 1)                    \
  X(log2_wave_bytes, 0)          \
  X(log2_read_over_floor, 0)

enum {
#define FEATURE_ENUM(name, steady) FEATURE_##name,
  PROBLEM_FEATURES(FEATURE_ENUM) FEATURES_OF_PROBLEM,
  FEATURE_before_kernel = FEATURES_OF_PROBLEM - 1,
  KERNEL_FEATURES(FEATURE_ENUM) FEATURE_COUNT,
#undef FEATURE_ENUM
};

// A candidate as Python describes it: the kind of its problems, min, max and step of M, N and K,
// and its numbers, in the order of NUMBERS in hgemm_packs/pack/features.py.
typedef struct {
  int32_t a_transposed, b_transposed, bf16;
  int32_t dims[3][3];
  int32_t family, tile_m, tile_n, tile_k, stages, cluster_m, cluster_n, cluster_k, slices,
      persistent, threads, smem_bytes, a_bytes, b_bytes, c_bytes, pingpong, wide, raster_n, group;
} candidate;

enum { CANDIDATE_WORDS = sizeof(candidate) / sizeof(int32_t) };

typedef struct {
  int32_t m, n, k;
  int a_transposed, b_transposed, bf16;
} seen_problem;

typedef struct {
  int32_t sm_count;
  double gbps;
} seen_device;

// The time that no kernel is much below, in us.
double features_floor_us(const seen_device *device, const seen_problem *p);

void features_of_problem(const seen_device *device, const seen_problem *p,
                         double values[FEATURE_COUNT]);

// The rest, of a kernel on the problem that `values` already has.
void features_of_kernel(const seen_device *device, const seen_problem *p, const candidate *kernel,
                        double values[FEATURE_COUNT]);

// Whether the kernel is for problems of this layout and type.
int candidate_is_of(const candidate *kernel, const seen_problem *p);

// Whether the kernel takes the problem, as far as kind and sizes tell. CTAs that share K outside a
// cluster wait for each other: the device must run all at once.
int candidate_admits(const seen_device *device, const candidate *kernel, const seen_problem *p);

#endif
