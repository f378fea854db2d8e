#include "cuda/driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

// dlsym returns an object pointer; ISO C has no cast from it to a function pointer, memcpy has.
static int find(void *library, const char *symbol, void *member) {
  void *address = dlsym(library, symbol);
  memcpy(member, &address, sizeof address);
  return address != NULL;
}

const char *driver_open(cu_driver *driver, const char *library) {
  static char message[256];
  if (driver->library) return NULL;
  cu_driver found = {0};
  found.library = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (!found.library) {
    snprintf(message, sizeof message, "%s cannot be opened", library);
    return message;
  }
  const char *missing = NULL;
#define CU_FIND(member, symbol, parameters) \
  if (!find(found.library, symbol, &found.member)) missing = symbol;
  CU_FUNCTIONS(CU_FIND)
#undef CU_FIND
  if (missing) {
    snprintf(message, sizeof message, "%s has no %s", library, missing);
    dlclose(found.library);
    return message;
  }
  cu_result result = found.init(0);
  if (result == CU_OK) result = found.driver_version(&found.version);
  if (result != CU_OK) {
    snprintf(message, sizeof message, "cuInit: %s", driver_error(&found, result));
    dlclose(found.library);
    return message;
  }
  *driver = found;
  return NULL;
}

const char *driver_error(const cu_driver *driver, cu_result result) {
  const char *name = NULL;
  if (driver->error_name(result, &name) != CU_OK || !name) return "unknown CUDA error";
  return name;
}
