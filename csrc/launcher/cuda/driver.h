// The CUDA driver functions that the launcher calls, declared here so that the build needs no CUDA
// header, and found with dlopen at the first CUDA tensor so that importing needs no driver. Names,
// numbers and struct layouts are the driver's ABI; tests run the whole launcher on a stand-in
// library with the same ABI.
#ifndef HGP_DRIVER_H
#define HGP_DRIVER_H

#include <stddef.h>
#include <stdint.h>

typedef int cu_result;
typedef int cu_device;
typedef void *cu_context;
typedef void *cu_module;
typedef void *cu_function;
typedef void *cu_stream;

#define CU_STREAM_PER_THREAD ((cu_stream)2)  // a handle for as many streams as there are threads

enum { CU_OK = 0, CU_INVALID_VALUE = 1 };
// What is wrong with a capture, and not with what is launched into or beside it.
enum { CU_CAPTURE_FIRST_ERROR = 900, CU_CAPTURE_LAST_ERROR = 908 };

enum {  // cuDeviceGetAttribute
  CU_DEVICE_SM_COUNT = 16,
  CU_DEVICE_PCI_BUS = 33,
  CU_DEVICE_PCI_DEVICE = 34,
  CU_DEVICE_MEMORY_KHZ = 36,
  CU_DEVICE_MEMORY_BITS = 37,
  CU_DEVICE_L2_BYTES = 38,
  CU_DEVICE_PCI_DOMAIN = 50,
  CU_DEVICE_MAJOR = 75,
  CU_DEVICE_MINOR = 76,
  CU_DEVICE_SMEM_OPTIN = 97,
};

enum {  // cuFuncGetAttribute, cuFuncSetAttribute
  CU_FUNC_MAX_THREADS = 0,
  CU_FUNC_STATIC_SMEM = 1,
  CU_FUNC_MAX_DYNAMIC_SMEM = 8,
  CU_FUNC_NON_PORTABLE_CLUSTER = 14,
};

enum { CU_CAPTURE_RELAXED = 2 };                      // cuThreadExchangeStreamCaptureMode
enum { CU_CAPTURE_NONE = 0, CU_CAPTURE_ACTIVE = 1 };  // cuStreamIsCapturing, cuStreamGetCaptureInfo

enum { CU_OBJECT_NO_SYNC = 1 };  // cuUserObjectCreate: nothing waits for the destructor
enum { CU_OBJECT_MOVE = 1 };     // cuGraphRetainUserObject: takes the caller's reference

enum { CU_TENSOR_F16 = 6, CU_TENSOR_BF16 = 9 };  // element types of a tensor map

enum { CU_ATTR_COOPERATIVE = 2, CU_ATTR_CLUSTER = 4, CU_ATTR_PDL = 6 };  // launch attribute ids

typedef struct {
  uint32_t id;
  uint32_t pad;
  union {
    uint32_t cluster[3];
    int32_t flag;
    uint64_t reserved[8];
  } value;
} cu_launch_attribute;

typedef struct {
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t smem_bytes;
  cu_stream stream;
  cu_launch_attribute *attributes;
  uint32_t attribute_count;
} cu_launch_config;

typedef struct {
  _Alignas(64) uint64_t opaque[16];
} cu_tensor_map;

enum { CU_NODE_KERNEL = 0 };        // cuGraphNodeGetType
enum { CU_EDGE_PROGRAMMATIC = 1 };  // type of an edge that leads to a dependent launch

typedef struct {
  cu_function function;  // NULL where `kernel` says it
  uint32_t grid[3], block[3], smem_bytes;
  void **params, **extra;
  void *kernel, *context;
} cu_kernel_node;

typedef struct {
  uint8_t from_port, to_port, type, reserved[5];
} cu_edge;

_Static_assert(sizeof(cu_launch_attribute) == 72, "CUlaunchAttribute");
_Static_assert(sizeof(cu_launch_config) == 56, "CUlaunchConfig");
_Static_assert(offsetof(cu_launch_config, attributes) == 40, "CUlaunchConfig.attrs");
_Static_assert(sizeof(cu_tensor_map) == 128, "CUtensorMap");
_Static_assert(sizeof(cu_kernel_node) == 72, "CUDA_KERNEL_NODE_PARAMS_v2");
_Static_assert(sizeof(cu_edge) == 8, "CUgraphEdgeData");

// X(member, exported symbol, parameters): one row per driver function, by the name that has this
// signature. Drivers since CUDA 12.4 export all of them.
#define CU_FUNCTIONS(X)                                                                            \
  X(init, "cuInit", (unsigned))                                                                    \
  X(driver_version, "cuDriverGetVersion", (int *))                                                 \
  X(error_name, "cuGetErrorName", (cu_result, const char **))                                      \
  X(device_get, "cuDeviceGet", (cu_device *, int))                                                 \
  X(device_name, "cuDeviceGetName", (char *, int, cu_device))                                      \
  X(device_attribute, "cuDeviceGetAttribute", (int *, int, cu_device))                             \
  X(context_retain, "cuDevicePrimaryCtxRetain", (cu_context *, cu_device))                         \
  X(context_current, "cuCtxGetCurrent", (cu_context *))                                            \
  X(context_push, "cuCtxPushCurrent_v2", (cu_context))                                             \
  X(context_pop, "cuCtxPopCurrent_v2", (cu_context *))                                             \
  X(capture_mode, "cuThreadExchangeStreamCaptureMode", (int *))                                    \
  X(stream_capturing, "cuStreamIsCapturing", (cu_stream, int *))                                   \
  X(stream_capture, "cuStreamGetCaptureInfo_v2",                                                   \
    (cu_stream, int *, uint64_t *, void **, const void ***, size_t *))                             \
  X(stream_id, "cuStreamGetId", (cu_stream, unsigned long long *))                                 \
  X(node_type, "cuGraphNodeGetType", (const void *, int *))                                        \
  X(kernel_node, "cuGraphKernelNodeGetParams_v2", (const void *, cu_kernel_node *))                \
  X(node_dependencies, "cuGraphNodeGetDependencies_v2",                                            \
    (const void *, const void **, cu_edge *, size_t *))                                            \
  X(object_create, "cuUserObjectCreate", (void **, void *, void (*)(void *), unsigned, unsigned))  \
  X(graph_retain, "cuGraphRetainUserObject", (void *, void *, unsigned, unsigned))                 \
  X(module_load, "cuModuleLoadData", (cu_module *, const void *))                                  \
  X(module_unload, "cuModuleUnload", (cu_module))                                                  \
  X(module_function, "cuModuleGetFunction", (cu_function *, cu_module, const char *))              \
  X(function_load, "cuFuncLoad", (cu_function))                                                    \
  X(function_get, "cuFuncGetAttribute", (int *, int, cu_function))                                 \
  X(function_set, "cuFuncSetAttribute", (cu_function, int, int))                                   \
  X(function_param, "cuFuncGetParamInfo", (cu_function, size_t, size_t *, size_t *))               \
  X(blocks_per_sm, "cuOccupancyMaxActiveBlocksPerMultiprocessor",                                  \
    (int *, cu_function, int, size_t))                                                             \
  X(active_clusters, "cuOccupancyMaxActiveClusters",                                               \
    (int *, cu_function, const cu_launch_config *))                                                \
  X(map_encode, "cuTensorMapEncodeTiled",                                                          \
    (cu_tensor_map *, int, uint32_t, void *, const uint64_t *, const uint64_t *, const uint32_t *, \
     const uint32_t *, int, int, int, int))                                                        \
  X(map_address, "cuTensorMapReplaceAddress", (cu_tensor_map *, void *))                           \
  X(launch, "cuLaunchKernelEx", (const cu_launch_config *, cu_function, void **, void **))

typedef struct {
  void *library;  // NULL until driver_open succeeded
  int version;    // cuDriverGetVersion: 13000 for 13.0
#define CU_MEMBER(member, symbol, parameters) cu_result(*member) parameters;
  CU_FUNCTIONS(CU_MEMBER)
#undef CU_MEMBER
} cu_driver;

// Opens `library` and initialises the driver once. Returns NULL, or what went wrong (valid until
// the next call).
const char *driver_open(cu_driver *driver, const char *library);

// The driver's name for a result, for example "CUDA_ERROR_INVALID_IMAGE".
const char *driver_error(const cu_driver *driver, cu_result result);

#endif
