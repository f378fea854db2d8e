#include "cuda/device.h"

cu_result device_open(const cu_driver *driver, int index, gpu *device) {
  if (device->context) return CU_OK;
  gpu found = {0};
  cu_device handle;
  cu_result result = driver->device_get(&handle, index);
  struct {
    int *value;
    int attribute;
  } facts[] = {{&found.major, CU_DEVICE_MAJOR},
               {&found.minor, CU_DEVICE_MINOR},
               {&found.sm_count, CU_DEVICE_SM_COUNT},
               {&found.l2_bytes, CU_DEVICE_L2_BYTES},
               {&found.smem_optin_bytes, CU_DEVICE_SMEM_OPTIN}},
    told[] = {{&found.memory_khz, CU_DEVICE_MEMORY_KHZ},
              {&found.memory_bits, CU_DEVICE_MEMORY_BITS},
              {&found.pci[0], CU_DEVICE_PCI_DOMAIN},
              {&found.pci[1], CU_DEVICE_PCI_BUS},
              {&found.pci[2], CU_DEVICE_PCI_DEVICE}};
  for (size_t i = 0; result == CU_OK && i < sizeof facts / sizeof *facts; i++)
    result = driver->device_attribute(facts[i].value, facts[i].attribute, handle);
  // A driver that does not tell one of these serves all the same.
  for (size_t i = 0; result == CU_OK && i < sizeof told / sizeof *told; i++)
    if (driver->device_attribute(told[i].value, told[i].attribute, handle)) *told[i].value = 0;
  if (result == CU_OK) result = driver->device_name(found.name, sizeof found.name, handle);
  if (result == CU_OK) result = driver->context_retain(&found.context, handle);
  if (result == CU_OK) *device = found;
  return result;
}

int device_is_current(const cu_driver *driver, cu_context context) {
  cu_context current = NULL;
  return driver->context_current(&current) == CU_OK && current == context;
}

cu_result device_enter(const cu_driver *driver, cu_context context, int *pushed) {
  cu_context current = NULL;
  *pushed = 0;
  cu_result result = driver->context_current(&current);
  if (result != CU_OK || current == context) return result;
  result = driver->context_push(context);
  *pushed = result == CU_OK;
  return result;
}

void device_leave(const cu_driver *driver, int pushed) {
  cu_context popped;
  if (pushed) driver->context_pop(&popped);
}
