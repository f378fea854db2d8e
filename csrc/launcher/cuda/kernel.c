#include "cuda/kernel.h"

#include <stdio.h>

#define REFUSE(...) (snprintf(refusal, sizeof refusal, __VA_ARGS__), refusal)

static _Thread_local char refusal[256];

static const char *check_params(const cu_driver *driver, cu_function function,
                                const param_layout_info *layout) {
  size_t offset, size;
  for (int i = 0; i < layout->count; i++) {
    cu_result result = driver->function_param(function, i, &offset, &size);
    if (result == CU_INVALID_VALUE)
      return REFUSE("the cubin has %d parameters, %s has %d", i, layout->name, layout->count);
    if (result != CU_OK) return REFUSE("cuFuncGetParamInfo: %s", driver_error(driver, result));
    if (size != (size_t)layout->sizes[i])
      return REFUSE("parameter %d of the cubin has %zu bytes, %s has %d", i, size, layout->name,
                    layout->sizes[i]);
  }
  if (driver->function_param(function, layout->count, &offset, &size) == CU_OK)
    return REFUSE("the cubin has more parameters than the %d of %s", layout->count, layout->name);
  return NULL;
}

static const char *check_limits(const cu_driver *driver, const gpu *device, cu_function function,
                                const launch_record *record) {
  int threads, static_smem;
  cu_result result = driver->function_get(&threads, CU_FUNC_MAX_THREADS, function);
  if (result == CU_OK) result = driver->function_get(&static_smem, CU_FUNC_STATIC_SMEM, function);
  if (result != CU_OK) return REFUSE("cuFuncGetAttribute: %s", driver_error(driver, result));
  if (record->block > threads)
    return REFUSE("block of %d threads, the cubin allows %d", record->block, threads);
  if (record->smem_bytes > device->smem_optin_bytes - static_smem)
    return REFUSE("%d + %d bytes of shared memory, the device allows %d", record->smem_bytes,
                  static_smem, device->smem_optin_bytes);
  return NULL;
}

// Set once here: attributes set per launch cost host time and race between threads.
static const char *set_attributes(const cu_driver *driver, cu_function function,
                                  const launch_record *record) {
  cu_result result = driver->function_set(function, CU_FUNC_MAX_DYNAMIC_SMEM, record->smem_bytes);
  // Clusters above 8 CTAs are an opt-in of the architecture.
  if (result == CU_OK && cluster_size(record) > 8)
    result = driver->function_set(function, CU_FUNC_NON_PORTABLE_CLUSTER, 1);
  if (result != CU_OK) return REFUSE("cuFuncSetAttribute: %s", driver_error(driver, result));
  return NULL;
}

// How many CTAs can run at once is asked of the driver: with clusters it depends on which SMs of
// the chip are fused off, so no formula gives it.
static const char *count_ctas(const cu_driver *driver, const gpu *device, loaded_kernel *kernel) {
  const launch_record *record = &kernel->record;
  int cluster = placed_together(record), groups = 0;
  cu_result result;
  if (cluster > 1) {
    cu_launch_attribute attribute = {.id = CU_ATTR_CLUSTER, .value.cluster = {cluster, 1, 1}};
    cu_launch_config config = {.grid = {(uint32_t)cluster, 1, 1},
                               .block = {(uint32_t)record->block, 1, 1},
                               .smem_bytes = (uint32_t)record->smem_bytes,
                               .attributes = &attribute,
                               .attribute_count = 1};
    result = driver->active_clusters(&groups, kernel->function, &config);
  } else {
    result =
        driver->blocks_per_sm(&groups, kernel->function, record->block, (size_t)record->smem_bytes);
    groups *= device->sm_count;
  }
  if (result != CU_OK) return REFUSE("occupancy: %s", driver_error(driver, result));
  if (groups < 1) return REFUSE("no block of this kernel fits the device");
  kernel->max_ctas = groups * cluster;
  return NULL;
}

static const char *prepare(const cu_driver *driver, const gpu *device, cu_module module,
                           const char *symbol, loaded_kernel *kernel) {
  cu_result result = driver->module_function(&kernel->function, module, symbol);
  if (result != CU_OK) return REFUSE("%s: %s", symbol, driver_error(driver, result));
  // Under lazy loading the code reaches the device at the first launch; that must not be the first
  // launch inside a graph capture.
  result = driver->function_load(kernel->function);
  if (result != CU_OK) return REFUSE("cuFuncLoad: %s", driver_error(driver, result));
  const launch_record *record = &kernel->record;
  const char *reason = check_params(driver, kernel->function, &PARAM_LAYOUT[record->params]);
  if (!reason) reason = check_limits(driver, device, kernel->function, record);
  if (!reason) reason = set_attributes(driver, kernel->function, record);
  if (!reason) reason = count_ctas(driver, device, kernel);
  return reason;
}

const char *kernel_load(const cu_driver *driver, const gpu *device, const void *image,
                        const char *symbol, loaded_kernel *kernel) {
  int pushed, mode = CU_CAPTURE_RELAXED;
  cu_result result = device_enter(driver, device->context, &pushed);
  if (result != CU_OK) return REFUSE("cuCtxPushCurrent: %s", driver_error(driver, result));
  kernel->context = device->context;
  // Another thread may be capturing in global mode; relaxed keeps this load out of its capture.
  driver->capture_mode(&mode);
  cu_module module;
  result = driver->module_load(&module, image);
  const char *reason;
  if (result != CU_OK) {
    reason = REFUSE("cuModuleLoadData: %s", driver_error(driver, result));
  } else {
    reason = prepare(driver, device, module, symbol, kernel);
    if (reason) driver->module_unload(module);
  }
  driver->capture_mode(&mode);
  device_leave(driver, pushed);
  return reason;
}
