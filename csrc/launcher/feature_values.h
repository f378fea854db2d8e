// What trees see of a problem and a kernel; the one implementation, for fitting and for choosing.
#ifndef HGP_FEATURE_VALUES_H
#define HGP_FEATURE_VALUES_H

#include <stdint.h>

// Of a problem alone: all that the model of torch sees.
#define PROBLEM_FEATURES(X) \
  X(log2_m)                 \
  X(log2_n)                 \
  X(log2_k)                 \
  X(log2_flop)              \
  X(log2_bytes)             \
  X(log2_floor)             \
  X(log2_mn)                \
  X(log2_m_over_n)          \
  X(log2_k_over_side)       \
  X(log2_intensity)         \
  X(a_transposed)           \
  X(b_transposed)           \
  X(bf16)                   \
  X(log2_row_bytes)         \
  X(log2_a_bytes)           \
  X(log2_b_bytes)           \
  X(log2_c_bytes)           \
  X(fill_m_64)              \
  X(fill_n_64)              \
  X(use_64x128)             \
  X(use_128x128)            \
  X(use_128x256)            \
  X(use_256x128)

// Of a kernel on a problem.
#define KERNEL_FEATURES(X)    \
  X(family)                   \
  X(tile_m)                   \
  X(tile_n)                   \
  X(tile_k)                   \
  X(stages)                   \
  X(cluster_m)                \
  X(cluster_n)                \
  X(parts_of_k)               \
  X(slices)                   \
  X(persistent)               \
  X(threads)                  \
  X(ctas_per_sm)              \
  X(log2_ctas)                \
  X(waves)                    \
  X(wave_use)                 \
  X(fill)                     \
  X(use)                      \
  X(log2_steps)               \
  X(log2_sm_bytes)            \
  X(log2_sm_flop)             \
  X(cluster_k)                \
  X(a_bytes)                  \
  X(b_bytes)                  \
  X(c_bytes)                  \
  X(pingpong)                 \
  X(wide)                     \
  X(smem_bytes)               \
  X(outputs_a_thread)         \
  X(filled_waves)             \
  X(log2_compute_over_floor)  \
  X(log2_sm_bytes_over_floor) \
  X(log2_traffic_over_floor)  \
  X(raster_n)                 \
  X(group)                    \
  X(log2_wave_bytes)          \
  X(log2_read_over_floor)

enum {
#define FEATURE_ENUM(name) FEATURE_##name,
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

// Whether the kernel takes the problem, as far as kind and sizes tell. CTAs that share K outside a
// cluster wait for each other: the device must run all at once.
int candidate_admits(const seen_device *device, const candidate *kernel, const seen_problem *p);

#endif
