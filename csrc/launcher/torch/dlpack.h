// The part of DLPack 1.x that the launcher reads: numbers of device and data types, and of the
// table of C functions that torch hangs on its Tensor type as `__dlpack_c_exchange_api__` the one
// that tells the current stream. Declared here from the DLPack specification so that the build
// needs no torch header.
#ifndef HGP_DLPACK_H
#define HGP_DLPACK_H

#include <stddef.h>
#include <stdint.h>

enum { DL_CPU = 1, DL_CUDA = 2 };      // device types
enum { DL_FLOAT = 2, DL_BFLOAT = 4 };  // data type codes
enum { DL_MAJOR = 1 };                 // the layout below holds for every 1.x
#define DL_CAPSULE "dlpack_exchange_api"

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
  void *view;
  int (*current_stream)(int32_t device_type, int32_t device_id, void **stream);
} dl_exchange;

_Static_assert(offsetof(dl_exchange, current_stream) == 48, "DLPackExchangeAPI");

#endif
