// A stand-in for libcuda on CPU memory: the same symbols and structs, two devices, and launches
// that compute the product from exactly the parameters and tensor maps they were given. Tests
// compile it and run the whole launcher on it; it is stricter than a driver where that finds bugs
// (wrong context, limits not raised, a map that no TMA unit would take).
//
// A "cubin" is text: "fake <symbol> <layout> <dtype> <epilogue> <threads> <static smem> <count>
// <sizes...>".
#include "fake_cuda.h"

#include <pthread.h>

// Tests of another card or an older driver say so to the compiler.
#ifndef FAKE_DRIVER_VERSION
#define FAKE_DRIVER_VERSION 13000
#endif
#ifndef FAKE_MAJOR
#define FAKE_MAJOR 9
#endif
#ifndef FAKE_NAME
#define FAKE_NAME "NVIDIA H200"
#endif
#ifndef FAKE_SMS
#define FAKE_SMS 132
#endif
#ifndef FAKE_L2_BYTES
#define FAKE_L2_BYTES 62914560
#endif
#ifndef FAKE_MEMORY_BITS
#define FAKE_MEMORY_BITS 6144
#endif

enum { DEVICES = 2 };

static char contexts[DEVICES];
static _Thread_local cu_context stack[16];
static _Thread_local int depth;
static _Thread_local uint64_t stream_id;

fake_control control = {.clusters = 66};

cu_context fake_current(void) {
  return depth ? stack[depth - 1] : NULL;
}

// Makes a context current as torch would have, without counting as a push.
void fake_set_device(int device) {
  depth = device >= 0;
  if (depth) stack[0] = &contexts[device];
}

// Every thread's launches are queued on stream 0 until it says another.
void fake_set_stream(uint64_t id) {
  stream_id = id;
}

// Some streams have the same, as if one were gone when the next was made.
static cu_stream fake_handle(void) {
  if (stream_id == UINT64_MAX) return CU_STREAM_PER_THREAD;
  if (stream_id == UINT64_MAX - 1) return NULL;
  return (cu_stream)(uintptr_t)((stream_id % 4096 + 1) * 64);
}

// Stands in for torch's member of the exchange table.
int fake_current_stream(int32_t device_type, int32_t device, void **stream) {
  (void)device_type, (void)device;
  *stream = fake_handle();
  return 0;
}

int fake_get_device(void) {
  return depth ? (int)((char *)stack[depth - 1] - contexts) : -1;
}

cu_result cuInit(unsigned flags) {
  return flags ? CU_INVALID_VALUE : CU_OK;
}

cu_result cuDriverGetVersion(int *version) {
  *version = FAKE_DRIVER_VERSION;
  return CU_OK;
}

cu_result cuGetErrorName(cu_result result, const char **name) {
  *name = result == FAKE_INVALID_IMAGE     ? "CUDA_ERROR_INVALID_IMAGE"
          : result == FAKE_NOT_FOUND       ? "CUDA_ERROR_NOT_FOUND"
          : result == FAKE_INVALID_CONTEXT ? "CUDA_ERROR_INVALID_CONTEXT"
          : result == FAKE_LAUNCH_FAILED   ? "CUDA_ERROR_LAUNCH_FAILED"
                                           : "CUDA_ERROR_INVALID_VALUE";
  return CU_OK;
}

cu_result cuDeviceGet(cu_device *device, int index) {
  *device = index;
  return index >= 0 && index < DEVICES ? CU_OK : 101;
}

cu_result cuDeviceGetName(char *name, int size, cu_device device) {
  snprintf(name, (size_t)size, device ? "Fake device" : FAKE_NAME);
  return CU_OK;
}

cu_result cuDeviceGetAttribute(int *value, int attribute, cu_device device) {
  switch (attribute) {
    case CU_DEVICE_SM_COUNT:
      *value = FAKE_SMS;
      return CU_OK;
    case CU_DEVICE_L2_BYTES:
      *value = FAKE_L2_BYTES;
      return CU_OK;
#ifdef FAKE_MEMORY_KHZ  // else the driver does not tell
    case CU_DEVICE_MEMORY_KHZ:
      *value = FAKE_MEMORY_KHZ;
      return CU_OK;
#endif
    case CU_DEVICE_MEMORY_BITS:
      *value = FAKE_MEMORY_BITS;
      return CU_OK;
    case CU_DEVICE_PCI_BUS:
      *value = 0x1b + device;
      return CU_OK;
    case CU_DEVICE_PCI_DEVICE:
    case CU_DEVICE_PCI_DOMAIN:
      *value = 0;
      return CU_OK;
    case CU_DEVICE_MAJOR:
      *value = FAKE_MAJOR;
      return CU_OK;
    case CU_DEVICE_MINOR:
      *value = 0;
      return CU_OK;
    case CU_DEVICE_SMEM_OPTIN:
      *value = 232448;
      return CU_OK;
    default:
      return CU_INVALID_VALUE;
  }
}

cu_result cuDevicePrimaryCtxRetain(cu_context *context, cu_device device) {
  *context = &contexts[device];
  return CU_OK;
}

cu_result cuCtxGetCurrent(cu_context *context) {
  *context = fake_current();
  return CU_OK;
}

cu_result cuCtxPushCurrent_v2(cu_context context) {
  if (depth == 16) return CU_INVALID_VALUE;
  stack[depth++] = context;
  control.pushes++;
  return CU_OK;
}

cu_result cuCtxPopCurrent_v2(cu_context *context) {
  if (!depth) return FAKE_INVALID_CONTEXT;
  *context = stack[--depth];
  return CU_OK;
}

cu_result cuThreadExchangeStreamCaptureMode(int *mode) {
  const int old = control.capture_mode;
  control.capture_mode = *mode;
  *mode = old;
  return CU_OK;
}

cu_result cuStreamIsCapturing(cu_stream stream, int *status) {
  (void)stream;
  if (!fake_current()) return FAKE_INVALID_CONTEXT;
  *status = control.capturing;
  return CU_OK;
}

cu_result cuStreamGetCaptureInfo_v2(cu_stream stream, int *status, uint64_t *id, void **graph,
                                    const void ***dependencies, size_t *count) {
  (void)stream;
  control.asked++;
  if (!fake_current()) return FAKE_INVALID_CONTEXT;
  if (!graph || !dependencies != !count) return CU_INVALID_VALUE;
  *status = control.capturing;
  if (control.capturing == CU_CAPTURE_ACTIVE && dependencies) {
    *dependencies = (const void **)control.nodes;
    *count = control.node_count;
  }
  if (control.capturing) *id = control.capture_id;
  if (control.capturing == CU_CAPTURE_ACTIVE) *graph = (void *)(uintptr_t)control.capture_id;
  return CU_OK;
}

// An H200's driver 580 ends the capture here, in every mode.
cu_result cuStreamGetId(cu_stream stream, unsigned long long *id) {
  if (!fake_current() || stream != fake_handle()) return FAKE_INVALID_CONTEXT;
  if (control.capturing) {
    control.capturing = FAKE_INVALIDATED;
    return CU_CAPTURE_FIRST_ERROR;
  }
  *id = stream_id;
  return CU_OK;
}

fake_node fake_nodes[FAKE_NODES];

static const fake_node *launched(const void *node) {
  for (int i = 0; i < FAKE_NODES; i++)
    if (node == &fake_nodes[i]) return node;
  return NULL;
}

// A node is a launch under capture, or the function that it launches: then it has no array of
// parameters, as if they had come in one piece, and depends on nothing. FAKE_MEMSET is one that
// launches none, NULL one whose kernel is said by another handle.
cu_result cuGraphNodeGetType(const void *node, int *type) {
  *type = node == FAKE_MEMSET ? CU_NODE_KERNEL + 2 : CU_NODE_KERNEL;
  return CU_OK;
}

cu_result cuGraphKernelNodeGetParams_v2(const void *node, cu_kernel_node *params) {
  if (node == FAKE_MEMSET) return CU_INVALID_VALUE;
  const fake_node *known = launched(node);
  *params = (cu_kernel_node){.function = known ? known->function : (cu_function)node};
  if (known) params->params = (void **)known->params;
  return CU_OK;
}

// Edges beyond those that there are look programmatic: nobody may read them.
cu_result cuGraphNodeGetDependencies_v2(const void *node, const void **before, cu_edge *edges,
                                        size_t *count) {
  const fake_node *known = launched(node);
  const size_t room = *count;
  if (control.fail_edges || !before || !edges) return CU_INVALID_VALUE;
  *count = 0;
  for (size_t i = 0; i < room; i++) {
    const int there = known && i < known->count;
    before[i] = there ? known->before[i] : NULL;
    edges[i] = (cu_edge){.type = !there || known->programmatic ? CU_EDGE_PROGRAMMATIC : 0};
    *count += (size_t)there;
  }
  return CU_OK;
}

// Makes a launch depend on other nodes, by edges of the kind that it has.
void fake_put_behind(fake_node *node, const void *first, const void *second, uint64_t count) {
  node->before[0] = first, node->before[1] = second;
  node->count = count;
}

// A graph is the number of its capture; what it owns is in this list.
typedef struct object {
  struct object *next;
  void (*destroy)(void *);
  void *of, *graph;
} object;

static object *objects;

cu_result cuUserObjectCreate(void **made, void *of, void (*destroy)(void *), unsigned references,
                             unsigned flags) {
  if (references != 1 || flags != CU_OBJECT_NO_SYNC || control.fail_objects)
    return CU_INVALID_VALUE;
  object *created = calloc(1, sizeof *created);
  created->destroy = destroy, created->of = of;
  *made = created;
  return CU_OK;
}

cu_result cuGraphRetainUserObject(void *graph, void *moved, unsigned count, unsigned flags) {
  object *own = moved;
  if (graph != (void *)(uintptr_t)control.capture_id || !control.capturing || count != 1 ||
      flags != CU_OBJECT_MOVE || own->graph)
    return CU_INVALID_VALUE;
  own->graph = graph;
  own->next = objects;
  objects = own;
  return CU_OK;
}

static void *run_destructors(void *graph) {
  uintptr_t count = 0;
  for (object **at = &objects; *at;) {
    object *each = *at;
    if (each->graph != graph) {
      at = &each->next;
      continue;
    }
    *at = each->next;
    each->destroy(each->of);
    free(each);
    count++;
  }
  return (void *)count;
}

// Graphs of another test live on where nobody sees them.
void fake_forget_graphs(void) {
  objects = NULL;
}

// As the driver does, on a thread of its own.
int fake_destroy_graph(uint64_t number) {
  pthread_t thread;
  void *count;
  if (pthread_create(&thread, NULL, run_destructors, (void *)(uintptr_t)number)) return -1;
  pthread_join(thread, &count);
  return (int)(uintptr_t)count;
}

static void *call_host(void *unused) {
  control.host_callback();
  return unused;
}

// Where a host callback is under way, a load waits for it: five seconds, and then fails.
static int callback_ends(void) {
  pthread_t thread;
  struct timespec end;
  if (!control.host_callback) return 1;
  clock_gettime(CLOCK_REALTIME, &end);
  end.tv_sec += 5;
  if (pthread_create(&thread, NULL, call_host, NULL)) return 0;
  return !pthread_timedjoin_np(thread, NULL, &end);
}

cu_result cuModuleLoadData(cu_module *module, const void *image) {
  if (!callback_ends()) return FAKE_LAUNCH_FAILED;
  fake_function *f = calloc(1, sizeof *f);
  int used = 0;
  control.unrelaxed_loads += control.capture_mode != CU_CAPTURE_RELAXED;
  // An ELF of 64 bits has a header of that many bytes; what is behind it is ours.
  const int elf = !strncmp(image, "\177ELF\2\1\1", 7);
  const char *next = (const char *)image + (elf ? 64 : 0);
  const int fields = sscanf(next, "fake %63s %7s %7s %15s %d %d %d%n", f->symbol, f->layout,
                            f->dtype, f->epilogue, &f->threads, &f->static_smem, &f->count, &used);
  next += used;
  for (int i = 0; fields == 7 && i < f->count; i++, next += used)
    if (sscanf(next, "%d%n", &f->sizes[i], &used) != 1) f->count = -1;
  if (fields != 7 || f->count < 0 || !fake_current()) {
    free(f);
    return fake_current() ? FAKE_INVALID_IMAGE : FAKE_INVALID_CONTEXT;
  }
  f->max_dynamic_smem = 49152;
  f->context = fake_current();
  *module = control.loaded = f;
  control.loads++;
  return CU_OK;
}

cu_result cuModuleUnload(cu_module module) {
  free(module);
  return CU_OK;
}

cu_result cuModuleGetFunction(cu_function *function, cu_module module, const char *symbol) {
  *function = module;
  return strcmp(((fake_function *)module)->symbol, symbol) ? FAKE_NOT_FOUND : CU_OK;
}

cu_result cuFuncLoad(cu_function function) {
  ((fake_function *)function)->loaded = 1;
  return CU_OK;
}

cu_result cuFuncGetAttribute(int *value, int attribute, cu_function function) {
  const fake_function *f = function;
  *value = attribute == CU_FUNC_MAX_THREADS ? f->threads : f->static_smem;
  return CU_OK;
}

cu_result cuFuncSetAttribute(cu_function function, int attribute, int value) {
  fake_function *f = function;
  if (attribute == CU_FUNC_NON_PORTABLE_CLUSTER)
    f->non_portable = value;
  else
    f->max_dynamic_smem = value;
  return CU_OK;
}

cu_result cuFuncGetParamInfo(cu_function function, size_t i, size_t *offset, size_t *size) {
  const fake_function *f = function;
  if (i >= (size_t)f->count) return CU_INVALID_VALUE;
  *offset = 0;
  *size = (size_t)f->sizes[i];
  return CU_OK;
}

cu_result cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, cu_function function, int block,
                                                      size_t smem) {
  (void)function, (void)block;
  *blocks = smem > 116224 ? 1 : 2;
  return CU_OK;
}

cu_result cuOccupancyMaxActiveClusters(int *clusters, cu_function function,
                                       const cu_launch_config *config) {
  (void)function, (void)config;
  *clusters = control.clusters;
  return CU_OK;
}

cu_result cuTensorMapEncodeTiled(cu_tensor_map *map, int type, uint32_t rank, void *address,
                                 const uint64_t *dims, const uint64_t *strides, const uint32_t *box,
                                 const uint32_t *steps, int interleave, int swizzle, int promotion,
                                 int fill) {
  if (!fake_current()) return FAKE_INVALID_CONTEXT;
  fake_map made = {.magic = FAKE_MAP_MAGIC,
                   .address = (uint64_t)(uintptr_t)address,
                   .rank = (uint8_t)rank,
                   .type = (uint8_t)type,
                   .swizzle = (uint8_t)swizzle,
                   .promotion = (uint8_t)promotion};
  const int inner_limit = swizzle ? 16 << swizzle : 512;
  int good = (type == CU_TENSOR_F16 || type == CU_TENSOR_BF16) && rank >= 2 && rank <= 4 &&
             made.address % 16 == 0 && !interleave && !fill && swizzle >= 0 && swizzle <= 3 &&
             promotion >= 0 && promotion <= 3 && (uintptr_t)map % 64 == 0 &&
             (int)box[0] * 2 <= inner_limit && box[0] % 8 == 0;
  for (uint32_t i = 0; good && i < rank; i++) {
    good = dims[i] >= 1 && dims[i] <= UINT32_MAX && box[i] >= 1 && box[i] <= 256 && steps[i] == 1;
    if (i && strides[i - 1] % 16) good = 0;
    made.dims[i] = (uint32_t)dims[i];
    made.box[i] = (uint16_t)box[i];
    if (i) made.strides[i - 1] = strides[i - 1];
  }
  if (!good) return CU_INVALID_VALUE;
  memset(map, 0, sizeof *map);
  memcpy(map, &made, sizeof made);
  control.encodes++;
  return CU_OK;
}

cu_result cuTensorMapReplaceAddress(cu_tensor_map *map, void *address) {
  fake_map made;
  memcpy(&made, map, sizeof made);
  if (made.magic != FAKE_MAP_MAGIC || (uintptr_t)address % 16) return CU_INVALID_VALUE;
  made.address = (uint64_t)(uintptr_t)address;
  memcpy(map, &made, sizeof made);
  return CU_OK;
}
