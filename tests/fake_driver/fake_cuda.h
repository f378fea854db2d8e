// What the two halves of the stand-in driver share, and what tests set and read through ctypes.
#ifndef FAKE_CUDA_H
#define FAKE_CUDA_H

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../csrc/launcher/cuda/driver.h"

enum {
  FAKE_INVALID_IMAGE = 200,
  FAKE_INVALID_CONTEXT = 201,
  FAKE_NOT_FOUND = 500,
  FAKE_LAUNCH_FAILED = 719,
};

typedef struct {
  char symbol[64], layout[8], dtype[8], epilogue[16];
  int threads, static_smem, count, sizes[16];
  int max_dynamic_smem, non_portable, loaded;
  cu_context context;
} fake_function;

#define FAKE_MAP_MAGIC UINT64_C(0x6d61705f74657374)

typedef struct {
  uint64_t address, magic;  // as the driver has it, the address comes first
  uint32_t dims[4];
  uint64_t strides[3];
  uint16_t box[4];
  uint8_t rank, type, swizzle, promotion;
} fake_map;

_Static_assert(sizeof(fake_map) <= sizeof(cu_tensor_map), "a map must fit");

// A launch under capture: a node with parameters of its own.
typedef struct {
  cu_function function;
  const void *before[2];  // what it depends on
  uint64_t count;
  int programmatic;  // whether its edges are
  void *params[16];
  char values[16][128];
} fake_node;

// The last of them, in a ring: more than a launch may look back on.
enum { FAKE_NODES = 256 };
extern fake_node fake_nodes[FAKE_NODES];

#define FAKE_MEMSET ((const void *)1)
enum { FAKE_INVALIDATED = 2 };  // a capture that takes no more launches

typedef struct {
  int capturing;        // what cuStreamIsCapturing answers
  int clusters;         // what cuOccupancyMaxActiveClusters answers
  int fail_launches;    // fail that many launches
  int noop;             // launch nothing, for timing the host path
  int capture_mode;     // of the thread
  int unrelaxed_loads;  // loads in another capture mode than relaxed
  int dirty;            // leave that many words of a workspace with something in them
  int fail_objects;     // make no user objects
  int fail_edges;       // do not say what a node depends on
  atomic_int loads, launches, pushes, encodes, asked;
  uint32_t grid, block, smem_bytes, cluster, pdl, cooperative;  // of the last launch
  void *stream;
  uint64_t capture_id;   // what cuStreamGetCaptureInfo answers
  void *parts;           // of the last launch, NULL without a workspace
  const void *nodes[2];  // what the next launch of a capture waits for
  uint64_t node_count;
  void *loaded;                 // the last kernel that was
  void (*host_callback)(void);  // runs on another thread before a load is done
} fake_control;

extern fake_control control;

// The calling thread's current context.
cu_context fake_current(void);

#endif
