#include "cuda/predecessor.h"

#include <stdlib.h>
#include <string.h>

// How many grids a launch looks back on: each costs three calls of the driver, and a plain launch
// begins a row anew.
enum { MOST_AHEAD = 64 };

// Bytes from the first to the last of a matrix, the gaps between its rows with them.
typedef struct {
  uintptr_t start, end;
} extent;

static const extent EVERYTHING = {0, UINTPTR_MAX};

static extent extent_of(const void *start, int64_t rows, int32_t cols, int32_t lead) {
  const uint64_t elements = ((uint64_t)rows - 1) * (uint64_t)lead + (uint64_t)cols;
  return (extent){(uintptr_t)start, (uintptr_t)start + elements * 2};
}

static int overlap(extent x, extent y) {
  return x.start < y.end && y.start < x.end;
}

static problem_key key_of(cu_function function, int device) {
  const uint64_t address = (uint64_t)(uintptr_t)function;
  return (problem_key){
      (uint32_t)address, (uint32_t)(address >> 32), (uint32_t)device, 0, {0}, 0, {0}};
}

int predecessor_add(launcher_state *state, const loaded_kernel *kernel) {
  const problem_key key = key_of(kernel->function, kernel->device);
  launch_record *record = malloc(sizeof *record);
  if (!record) return -1;
  *record = kernel->record;
  if (table_put(&state->functions, &key, record) == 0) return 0;
  free(record);
  return -1;
}

// Whether the next launch of `run` waits for one node alone, and that node.
static int find(const launcher_state *state, const plan *run, cu_stream stream, int is_current,
                int *eager, const void **node) {
  const cu_driver *driver = &state->driver;
  int status = CU_CAPTURE_NONE;
  uint64_t capture;
  void *graph;
  const void **nodes = NULL;
  size_t count = 0;
  *eager = 0;
  // The default streams are those of the current context.
  if (!is_current && driver->context_push(run->context) != CU_OK) return 0;
  const cu_result code = driver->stream_capture(stream, &status, &capture, &graph, &nodes, &count);
  device_leave(driver, !is_current);
  *eager = code == CU_OK && status == CU_CAPTURE_NONE;
  if (code != CU_OK || status != CU_CAPTURE_ACTIVE || count != 1) return 0;
  *node = nodes[0];
  return 1;
}

// What a node launches: its parameters, and the record if it is a kernel of ours, else NULL.
static const launch_record *record_of(const launcher_state *state, int device, const void *node,
                                      cu_kernel_node *launched) {
  const cu_driver *driver = &state->driver;
  int type;
  if (driver->node_type(node, &type) != CU_OK || type != CU_NODE_KERNEL ||
      driver->kernel_node(node, launched) != CU_OK || !launched->function)
    return NULL;
  const problem_key key = key_of(launched->function, device);
  return table_find(&state->functions, &key);
}

// Whether `map` is that of a packed C of this shape at `c`.
static int maps_packed(const cu_driver *driver, const launch_record *record, const geometry *shape,
                       void *c, const void *map) {
  cu_tensor_map packed;
  return encode_map(driver, record, shape, 2, c, &packed) == CU_OK &&
         memcmp(&packed, map, sizeof packed) == 0;
}

// C of a launch of ours. Parameters that are no array say nothing. Nor does a tensor map, but it
// can be held against another: its first word is C's address, if the map of a packed C that begins
// there is the same.
static extent written_by(const cu_driver *driver, const cu_kernel_node *node,
                         const launch_record *record) {
  const param_layout_info *layout = &PARAM_LAYOUT[record->params];
  if (!node->params) return EVERYTHING;
  void *const *sizes = node->params + 3 + layout->workspace;
  void *c;
  geometry shape = {0};
  int32_t lead;
  memcpy(&c, node->params[2], sizeof c);
  memcpy(&shape.m, sizes[0], sizeof shape.m);
  memcpy(&shape.n, sizes[1], sizeof shape.n);
  if (layout->batched) memcpy(&shape.batches, node->params[layout->count - 1], sizeof(int32_t));
  const int32_t columns = columns_of(record, shape.n);
  const int64_t rows = (int64_t)shape.m * products_of(&shape);  // C's follow each other
  if (layout->maps == MAX_MAPS) {
    shape.ld[2] = columns;
    const int packed = maps_packed(driver, record, &shape, c, node->params[2]);
    return packed ? extent_of(c, rows, columns, columns) : EVERYTHING;
  }
  const int behind = layout->addend + 2 * layout->grouped + layout->batched;
  memcpy(&lead, node->params[layout->count - 1 - behind], sizeof lead);
  return extent_of(c, rows, columns, lead);
}

static int reads(const plan *run, void *const addresses[3], extent written) {
  const geometry *g = &run->shape;
  const int32_t stored[2][2] = {{g->m, g->k}, {g->k, g->n}};
  for (int i = 0; i < 2; i++) {
    const int flip = run->transposed[i];
    if (overlap(extent_of(addresses[i], stored[i][flip], stored[i][!flip], g->ld[i]), written))
      return 1;
  }
  return 0;
}

int may_depend(const launcher_state *state, const plan *run, void *const addresses[3],
               cu_stream stream, int is_current, int *eager) {
  const cu_driver *driver = &state->driver;
  const void *node;
  if (!find(state, run, stream, is_current, eager, &node)) return 0;
  // Kernels that trigger early let others start at once, so all grids of a row of them may still
  // run. Of what others may read a kernel of ours writes C alone.
  for (int i = 0; i < MOST_AHEAD; i++) {
    cu_kernel_node launched;
    const launch_record *record = record_of(state, run->device, node, &launched);
    if (!record) return 0;
    if (!run->reads_ahead) return 1;
    if (reads(run, addresses, written_by(driver, &launched, record))) return 0;
    // All before it had ended when it let others start.
    if (!record->triggers_early) return 1;
    const void *before[2];
    cu_edge edges[2];
    size_t count = 2;
    if (driver->node_dependencies(node, before, edges, &count) != CU_OK) return 0;
    // Launched plainly: all before it had ended when it began.
    if (count != 1 || edges[0].type != CU_EDGE_PROGRAMMATIC) return 1;
    node = before[0];
  }
  return 0;
}
