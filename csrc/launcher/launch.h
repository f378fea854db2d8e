// A plan is a loaded kernel bound to one geometry: grid, parameters and encoded tensor maps, all
// but the three addresses and the stream. Making one costs about a microsecond and happens once
// per problem; running one is a copy, up to three re-pointed maps and the driver's launch.
#ifndef HGP_LAUNCH_H
#define HGP_LAUNCH_H

#include "kernel.h"

typedef struct {
  int32_t m, n, k;
  int32_t ld[3];  // leading strides of A, B, C in elements
} geometry;

typedef struct {
  cu_tensor_map maps[MAX_MAPS];
  cu_function function;
  cu_context context;
  geometry shape;
  int device;
  param_layout params;
  uint32_t grid[2], block, cluster, smem_bytes;
  uint32_t workspace_bytes;  // of each CTA of the grid
  int pdl, cooperative;
} plan;

// What a kernel with a workspace works on: a counter for each CTA of the grid, all zero before and
// after, and partial sums, whose contents mean nothing between launches.
typedef struct {
  void *counters, *partials;
} scratch;

// Bytes of partial sums that one launch may need. Splitting K is for few tiles: what needs more is
// a mistake.
#define MAX_PARTIALS (INT64_C(1) << 32)

static inline size_t plan_ctas(const plan *run) {
  return (size_t)run->grid[0] * run->grid[1];
}

// CTAs of the grid of an M x N output, along x; y has one, or the tiles along N.
int64_t grid_of(const loaded_kernel *kernel, int64_t m, int64_t n, int64_t *y);

// Binds `kernel` to `shape`; `addresses` (A, B, C) only have to be valid for the encoding. Returns
// NULL, or why this kernel cannot run this geometry (valid until the next call).
const char *plan_make(const cu_driver *driver, const loaded_kernel *kernel, const geometry *shape,
                      void *const addresses[3], plan *result);

// Launches on `stream`, in whatever context is current; `memory` may be NULL for a plan without a
// workspace. Re-points the maps of `run` in place: pass a private copy.
cu_result plan_run(const cu_driver *driver, plan *run, void *const addresses[3],
                   const scratch *memory, cu_stream stream);

#endif
