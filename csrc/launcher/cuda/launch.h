// A plan is a loaded kernel bound to one geometry: grid, parameters and encoded tensor maps, all
// but the addresses and the stream. Making one costs about a microsecond and happens once
// per problem; running one is up to three copied and re-pointed maps and the driver's launch.
#ifndef HGP_LAUNCH_H
#define HGP_LAUNCH_H

#include "cuda/kernel.h"

typedef struct {
  int32_t m, n, k;
  int32_t ld[3];    // leading strides of A, B, C in elements
  int32_t groups;   // of a grouped product, whose B is as many matrices behind each other; else 0
  int32_t batches;  // of a batch, as many products, each of matrices of its own; else 0
  int32_t step[2];  // of a batch, elements from one A or B to the next; C's follow each other
} geometry;

// Products of the problem.
static inline int32_t products_of(const geometry *shape) {
  return shape->batches ? shape->batches : 1;
}

typedef struct {
  cu_tensor_map maps[MAX_MAPS];
  cu_function function;
  cu_context context;
  geometry shape;
  int device;
  param_layout params;
  uint32_t grid[2], block, cluster, smem_bytes;
  size_t workspace_bytes;  // of the whole grid
  int pdl, cooperative, reads_ahead;
  int transposed[2];  // how A and B are stored
  int bytes_of_c;     // that its address and rows must be aligned to
} plan;

// Why a grid of a cooperative kernel is refused: CTAs of it, CTAs that fit.
#define TOO_MANY_CTAS "%lld CTAs that wait for each other, the device runs %d at once"

// CTAs of the grid of so many M x N outputs (no side above INT32_MAX), along x; y has one, or the
// tiles along N.
int64_t grid_of(const loaded_kernel *kernel, int64_t batches, int64_t m, int64_t n, int64_t *y);

// The map of operand `i` (0 A, 1 B, 2 C), with its contiguous dimension as the inner one.
cu_result encode_map(const cu_driver *driver, const launch_record *record, const geometry *shape,
                     int i, void *address, cu_tensor_map *map);

// What a launch is told of where things are: A, B, C and, for a kernel that adds one, the addend,
// for a grouped one the ends of its groups.
// It lies outside C: a kernel may have stored a tile of C before it reads the addend of another.
enum { ADDRESSES = 4 };

// Binds `kernel` to `shape`; `addresses` only have to be valid for the encoding. Returns
// NULL, or why this kernel cannot run this geometry (valid until the next call).
const char *plan_make(const cu_driver *driver, const loaded_kernel *kernel, const geometry *shape,
                      void *const addresses[ADDRESSES], plan *result);

// Launches on `stream`, in whatever context is current; `lead` is the leading stride of C, another
// than the plan's only where C is aligned to less than 16 bytes; `parts` is the workspace, for a
// plan that has one. Leaves `run` as it is, so that threads can launch it at once.
cu_result plan_run(const cu_driver *driver, const plan *run, void *const addresses[ADDRESSES],
                   int32_t lead, void *parts, cu_stream stream);

#endif
