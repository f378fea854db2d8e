// The part of DLPack 1.x that the launcher reads: a borrowed tensor view, and the table of C
// functions that torch hangs on its Tensor type as `__dlpack_c_exchange_api__`. Declared here from
// the DLPack specification so that the build needs no torch header; tests compare a view with
// torch's own answers.
#ifndef HGP_DLPACK_H
#define HGP_DLPACK_H

#include <stddef.h>
#include <stdint.h>

enum { DL_CPU = 1, DL_CUDA = 2 };      // device types
enum { DL_FLOAT = 2, DL_BFLOAT = 4 };  // data type codes
enum { DL_MAJOR = 1 };                 // the layouts below hold for every 1.x
#define DL_CAPSULE "dlpack_exchange_api"

// A view that owns nothing: shape and strides (in elements) point into the producer's tensor and
// are valid only until control goes back to Python.
typedef struct {
  void *data;
  int32_t device_type;
  int32_t device_id;
  int32_t ndim;
  uint8_t type_code;
  uint8_t type_bits;
  uint16_t type_lanes;
  int64_t *shape;
  int64_t *strides;
  uint64_t byte_offset;
} dl_tensor;

typedef struct dl_exchange_header {
  uint32_t major;
  uint32_t minor;
  struct dl_exchange_header *previous;  // an older table, or NULL
} dl_exchange_header;

// Members that the launcher does not call keep their place as untyped pointers. Functions return
// 0, or -1 with a Python exception set.
typedef struct {
  dl_exchange_header header;
  void *allocate;
  void *managed_from_object;
  void *managed_to_object;
  int (*view)(void *py_object, dl_tensor *out);
  int (*current_stream)(int32_t device_type, int32_t device_id, void **stream);
} dl_exchange;

_Static_assert(sizeof(dl_tensor) == 48, "DLTensor");
_Static_assert(offsetof(dl_tensor, shape) == 24, "DLTensor.shape");
_Static_assert(offsetof(dl_exchange, view) == 40, "DLPackExchangeAPI.dltensor_from_py_object");

#endif
