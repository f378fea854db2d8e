// One GPU as the launcher sees it: its primary context (the one torch uses), retained once for the
// life of the process, and the facts that packs are matched against.
#ifndef HGP_DEVICE_H
#define HGP_DEVICE_H

#include "cuda/driver.h"

enum { MAX_DEVICES = 64 };

typedef struct {
  cu_context context;  // NULL until device_open succeeded
  int major, minor;    // compute capability
  int sm_count;
  int l2_bytes;
  int smem_optin_bytes;         // largest dynamic shared memory of a block
  int memory_khz, memory_bits;  // clock and width of the memory's bus; 0: the driver does not tell
  int pci[3];                   // domain, bus, device
  char name[128];
} gpu;

// Fills `device` for the driver's ordinal `index`, which is also torch's. CU_OK when done before.
cu_result device_open(const cu_driver *driver, int index, gpu *device);

int device_is_current(const cu_driver *driver, cu_context context);

// Makes `context` current where it is not; `device_leave` undoes exactly that. `pushed` carries
// the state between the two.
cu_result device_enter(const cu_driver *driver, cu_context context, int *pushed);
void device_leave(const cu_driver *driver, int pushed);

#endif
