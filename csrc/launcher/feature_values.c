#include "feature_values.h"

#include <math.h>

// What an SM of sm_90 multiplies in a microsecond, and what a launch takes at least.
static const double SM_FLOP_PER_US = 7.5e6, LAUNCH_US = 2.0;
enum { SM_SMEM_BYTES = 233472, CTA_SMEM_BYTES = 1024, SM_THREADS = 2048, MOST_CTAS = 32 };

static double quotient_up(double x, double by) {
  return ceil(x / by);
}

// How much of the tiles is the problem's.
static double fill_of(double size, double tile) {
  return size / (quotient_up(size, tile) * tile);
}

// How much of the slots that whole waves offer is taken.
static double wave_use_of(double ctas, double slots) {
  return ctas / (quotient_up(ctas, slots) * slots);
}

static double use_of(const seen_device *device, const seen_problem *p, double rows, double cols) {
  const double tiles = quotient_up(p->m, rows) * quotient_up(p->n, cols);
  return fill_of(p->m, rows) * fill_of(p->n, cols) * wave_use_of(tiles, device->sm_count);
}

static double flop_of(const seen_problem *p) {
  return 2.0 * p->m * p->n * p->k;
}

static double bytes_of(const seen_problem *p) {
  const double m = p->m, n = p->n, k = p->k;
  return 2.0 * (m * k + k * n + m * n);
}

// The largest power of two, up to 16, that divides the bytes of a row of so many elements.
static double bytes_of_row(int32_t elements) {
  const uint32_t all = (uint32_t)elements | 8;
  return 2.0 * (all & -all);
}

double features_floor_us(const seen_device *device, const seen_problem *p) {
  const double compute = flop_of(p) / (SM_FLOP_PER_US * device->sm_count);
  return fmax(compute, bytes_of(p) / (device->gbps * 1e3)) + LAUNCH_US;
}

void features_of_problem(const seen_device *device, const seen_problem *p,
                         double values[FEATURE_COUNT]) {
  const double a_bytes = bytes_of_row(p->a_transposed ? p->m : p->k);
  const double b_bytes = bytes_of_row(p->b_transposed ? p->k : p->n);
  const double c_bytes = bytes_of_row(p->n);
  values[FEATURE_log2_m] = log2(p->m);
  values[FEATURE_log2_n] = log2(p->n);
  values[FEATURE_log2_k] = log2(p->k);
  values[FEATURE_log2_flop] = log2(flop_of(p));
  values[FEATURE_log2_bytes] = log2(bytes_of(p));
  values[FEATURE_log2_floor] = log2(features_floor_us(device, p));
  values[FEATURE_log2_mn] = values[FEATURE_log2_m] + values[FEATURE_log2_n];
  values[FEATURE_log2_m_over_n] = values[FEATURE_log2_m] - values[FEATURE_log2_n];
  values[FEATURE_log2_k_over_side] = 2.0 * values[FEATURE_log2_k] - values[FEATURE_log2_mn];
  values[FEATURE_log2_intensity] = values[FEATURE_log2_flop] - values[FEATURE_log2_bytes];
  values[FEATURE_a_transposed] = p->a_transposed;
  values[FEATURE_b_transposed] = p->b_transposed;
  values[FEATURE_bf16] = p->bf16;
  values[FEATURE_log2_row_bytes] = log2(fmin(fmin(a_bytes, b_bytes), c_bytes));
  values[FEATURE_log2_a_bytes] = log2(a_bytes);
  values[FEATURE_log2_b_bytes] = log2(b_bytes);
  values[FEATURE_log2_c_bytes] = log2(c_bytes);
  values[FEATURE_fill_m_64] = fill_of(p->m, 64);
  values[FEATURE_fill_n_64] = fill_of(p->n, 64);
  values[FEATURE_use_64x128] = use_of(device, p, 64, 128);
  values[FEATURE_use_128x128] = use_of(device, p, 128, 128);
  values[FEATURE_use_128x256] = use_of(device, p, 128, 256);
  values[FEATURE_use_256x128] = use_of(device, p, 256, 128);
}

static double ctas_of(const seen_problem *p, const candidate *kernel) {
  return quotient_up(p->m, kernel->tile_m) * quotient_up(p->n, kernel->tile_n) * kernel->cluster_k *
         kernel->slices;
}

// Rows and columns of C that the tiles of a wave span together: tiles go along the raster, `group`
// of the other side at a time.
static double wave_span(const candidate *kernel, double tiles_m, double tiles_n, double at_a_time) {
  const double along = kernel->raster_n ? tiles_n : tiles_m;
  const double across = kernel->raster_n ? tiles_m : tiles_n;
  const double band = fmin(kernel->group, across);
  const int whole = at_a_time >= band * along;
  const double length = whole ? along : fmin(along, quotient_up(at_a_time, band));
  const double width = whole ? fmin(across, quotient_up(at_a_time, along)) : band;
  const int32_t tile_along = kernel->raster_n ? kernel->tile_n : kernel->tile_m;
  const int32_t tile_across = kernel->raster_n ? kernel->tile_m : kernel->tile_n;
  return length * tile_along + width * tile_across;
}

void features_of_kernel(const seen_device *device, const seen_problem *p, const candidate *kernel,
                        double values[FEATURE_COUNT]) {
  const double tiles_m = quotient_up(p->m, kernel->tile_m);
  const double tiles_n = quotient_up(p->n, kernel->tile_n);
  const double parts = (double)kernel->cluster_k * kernel->slices;
  const double ctas = ctas_of(p, kernel);
  const double by_memory = SM_SMEM_BYTES / (kernel->smem_bytes + CTA_SMEM_BYTES);
  const double by_threads = SM_THREADS / kernel->threads;
  const double at_once = fmax(1.0, fmin(MOST_CTAS, fmin(by_memory, by_threads)));
  const double slots = at_once * device->sm_count;
  const double fill = fill_of(p->m, kernel->tile_m) * fill_of(p->n, kernel->tile_n);
  const double steps = quotient_up(p->k, kernel->tile_k * parts);
  const double tile_bytes = 2.0 * (kernel->tile_m + kernel->tile_n) * kernel->tile_k * steps;
  const double tile_flop = 2.0 * kernel->tile_m * kernel->tile_n * kernel->tile_k * steps;
  const double on_an_sm = quotient_up(ctas, device->sm_count);
  const double m = p->m, n = p->n, k = p->k;
  const double traffic =
      2.0 * (tiles_n * m * k / kernel->cluster_n + tiles_m * k * n / kernel->cluster_m);
  const double tiles = tiles_m * tiles_n;
  const double at_a_time = fmin(tiles, fmax(1.0, slots / parts));
  const double wave_bytes = 2.0 * k * wave_span(kernel, tiles_m, tiles_n, at_a_time);
  const double floor = values[FEATURE_log2_floor];
  values[FEATURE_family] = kernel->family;
  values[FEATURE_tile_m] = kernel->tile_m;
  values[FEATURE_tile_n] = kernel->tile_n;
  values[FEATURE_tile_k] = kernel->tile_k;
  values[FEATURE_stages] = kernel->stages;
  values[FEATURE_cluster_m] = kernel->cluster_m;
  values[FEATURE_cluster_n] = kernel->cluster_n;
  values[FEATURE_parts_of_k] = parts;
  values[FEATURE_slices] = kernel->slices;
  values[FEATURE_persistent] = kernel->persistent;
  values[FEATURE_threads] = kernel->threads;
  values[FEATURE_ctas_per_sm] = at_once;
  values[FEATURE_log2_ctas] = log2(ctas);
  values[FEATURE_waves] = quotient_up(ctas, slots);
  values[FEATURE_wave_use] = wave_use_of(ctas, slots);
  values[FEATURE_fill] = fill;
  values[FEATURE_use] = fill * ctas / (on_an_sm * device->sm_count);
  values[FEATURE_log2_steps] = log2(steps);
  values[FEATURE_log2_sm_bytes] = log2(tile_bytes * on_an_sm);
  values[FEATURE_log2_sm_flop] = log2(tile_flop * on_an_sm);
  values[FEATURE_cluster_k] = kernel->cluster_k;
  values[FEATURE_a_bytes] = kernel->a_bytes;
  values[FEATURE_b_bytes] = kernel->b_bytes;
  values[FEATURE_c_bytes] = kernel->c_bytes;
  values[FEATURE_pingpong] = kernel->pingpong;
  values[FEATURE_wide] = kernel->wide;
  values[FEATURE_smem_bytes] = kernel->smem_bytes;
  values[FEATURE_outputs_a_thread] = (double)kernel->tile_m * kernel->tile_n / kernel->threads;
  values[FEATURE_filled_waves] = ctas / slots;
  values[FEATURE_log2_compute_over_floor] =
      values[FEATURE_log2_sm_flop] - log2(SM_FLOP_PER_US) - floor;
  values[FEATURE_log2_sm_bytes_over_floor] = values[FEATURE_log2_sm_bytes] - floor;
  values[FEATURE_log2_traffic_over_floor] = log2(traffic) - floor;
  values[FEATURE_raster_n] = kernel->raster_n;
  values[FEATURE_group] = kernel->group;
  values[FEATURE_log2_wave_bytes] = log2(wave_bytes);
  values[FEATURE_log2_read_over_floor] = log2(wave_bytes * (tiles / at_a_time)) - floor;
}

int candidate_is_of(const candidate *kernel, const seen_problem *p) {
  return kernel->a_transposed == p->a_transposed && kernel->b_transposed == p->b_transposed &&
         kernel->bf16 == p->bf16;
}

int candidate_admits(const seen_device *device, const candidate *kernel, const seen_problem *p) {
  const int32_t sizes[3] = {p->m, p->n, p->k};
  if (!candidate_is_of(kernel, p)) return 0;
  for (int i = 0; i < 3; i++)
    if (sizes[i] < kernel->dims[i][0] || sizes[i] > kernel->dims[i][1] ||
        sizes[i] % kernel->dims[i][2])
      return 0;
  return kernel->slices == 1 || ctas_of(p, kernel) <= device->sm_count;
}
