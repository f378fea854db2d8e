#include "predecessor.h"

static problem_key key_of(cu_function function, int device) {
  const uint64_t address = (uint64_t)(uintptr_t)function;
  return (problem_key){(uint32_t)address, (uint32_t)(address >> 32), (uint32_t)device, 0};
}

int predecessor_add(launcher_state *state, const loaded_kernel *kernel) {
  const problem_key key = key_of(kernel->function, kernel->device);
  return table_put(&state->functions, &key, kernel->function);
}

int follows_own_kernel(const launcher_state *state, const plan *run, cu_stream stream,
                       int is_current) {
  const cu_driver *driver = &state->driver;
  int status = CU_CAPTURE_NONE, type;
  uint64_t capture;
  void *graph;
  const void **nodes = NULL;
  size_t count = 0;
  cu_kernel_node node;
  // The default streams are those of the current context.
  if (!is_current && driver->context_push(run->context) != CU_OK) return 0;
  const cu_result code = driver->stream_capture(stream, &status, &capture, &graph, &nodes, &count);
  device_leave(driver, !is_current);
  if (code != CU_OK || status != CU_CAPTURE_ACTIVE || count != 1) return 0;
  if (driver->node_type(nodes[0], &type) != CU_OK || type != CU_NODE_KERNEL ||
      driver->kernel_node(nodes[0], &node) != CU_OK || !node.function)
    return 0;
  const problem_key key = key_of(node.function, run->device);
  return table_find(&state->functions, &key) != NULL;
}
