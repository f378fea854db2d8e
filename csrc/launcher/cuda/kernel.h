// A launch record and the kernel loaded from it: everything that is decided once, when a kernel is
// loaded on a device, so that a call only launches. The Python side has validated the record; the
// driver's own view of the cubin is checked against it here, and a kernel that disagrees is
// refused before its first launch.
#ifndef HGP_KERNEL_H
#define HGP_KERNEL_H

#include "cuda/device.h"
#include "cuda/param_layouts.h"

typedef struct {
  uint32_t box[2];   // elements: inner (contiguous), outer
  int swizzle;       // bytes: 0, 32, 64, 128
  int row_group;     // 0; 32: rows of each group of 32 in the order 4*i+j; 16: 8 rows of the first
                     // half, then 8 of the second (see launch.c)
  int l2_promotion;  // bytes: 0, 64, 128, 256
} map_spec;

typedef struct {
  long long min, max, multiple_of;
} dim_range;

// What a kernel makes of the product before it rounds, as far as a launch depends on it.
typedef enum {
  EPILOGUE_NONE,
  EPILOGUE_BIAS,      // adds a bias [N]; with or without an activation
  EPILOGUE_RESIDUAL,  // adds a matrix [M,N], packed
  EPILOGUE_GATED,     // C [M,N/2] of both halves of the columns
} epilogue_kind;

typedef struct {
  param_layout params;
  epilogue_kind epilogue;
  int block;
  int cluster[3];  // CTAs along M, N and K, 16 at most; those along K share a tile
  int tile[2];     // elements of the product along M and N
  int slices;      // parts of K that clusters of their own work on
  int persistent;
  int smem_bytes;       // dynamic
  int workspace_bytes;  // of one CTA of the grid; 0 without a workspace
  int pdl;              // programmatic dependent launch
  int cooperative;      // CTAs wait for each other: all of the grid must run at the same time
  int reads_ahead;      // reads A and B before it waits for the grid ahead
  int triggers_early;   // lets the next grid start before that
  int transposed[2];    // how A and B are stored: 0 as the product reads them, 1 transposed
  int dtype;            // DL_FLOAT (f16) or DL_BFLOAT (bf16)
  int align[3];         // bytes, of the pointers and leading strides of A, B, C
  dim_range dims[3];    // M, N, K
  map_spec maps[MAX_MAPS];
} launch_record;

// Columns of C, of a product of N columns.
static inline int32_t columns_of(const launch_record *record, int32_t n) {
  return record->epilogue == EPILOGUE_GATED ? n / 2 : n;
}

static inline int cluster_size(const launch_record *record) {
  return record->cluster[0] * record->cluster[1] * record->cluster[2];
}

// CTAs that are placed together, of a grid of which they are a divisor. A dependent grid takes SMs
// in the order in which they become free, so a persistent kernel is launched in pairs: two CTAs
// with neighbouring tiles stay on neighbouring SMs, which are served together where they ask for
// the same lines. nn, fp16: 64x4096x16384 42.4 -> 34.6 us (35.7 not dependent), the mean of 55
// kernels 1.027.
static inline int placed_together(const launch_record *record) {
  const int paired = record->pdl && record->persistent && cluster_size(record) == 1;
  return paired ? 2 : cluster_size(record);
}

typedef struct {
  launch_record record;
  int device;
  cu_context context;
  cu_function function;
  int max_ctas;  // co-resident CTAs of the whole device, a multiple of those placed together
} loaded_kernel;

// Loads `image` (a cubin) on `device` and takes `symbol` from it. Returns NULL, or the reason for
// refusing the kernel (valid until the thread's next call). Needs no GIL. The module is never
// unloaded afterwards: a captured graph may replay the kernel for as long as the process lives.
const char *kernel_load(const cu_driver *driver, const gpu *device, const void *image,
                        const char *symbol, loaded_kernel *kernel);

#endif
