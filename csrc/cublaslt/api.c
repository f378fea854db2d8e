// Finds libcublasLt at run time. torch has loaded one already in every process that times
// anything, and the baseline must be that very library, so RTLD_NOLOAD comes first.
#include "api.h"

#include <dlfcn.h>

static void *open_first(const char *const *names, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    void *library = dlopen(names[i], RTLD_NOW | RTLD_NOLOAD);
    if (library) return library;
  }
  for (size_t i = 0; i < count; ++i) {
    void *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (library) return library;
  }
  return NULL;
}

const char *lt_open(lt_api *api, const char *const *names, size_t count) {
  // The library stays open for the life of the process: plans hold pointers into it.
  void *library = open_first(names, count);
  if (!library) return "cuBLASLt is not loaded and was not found";
  const struct {
    void **slot;
    const char *name;
  } wanted[] = {
      {(void **)&api->get_version, "cublasLtGetVersion"},
      {(void **)&api->status_name, "cublasLtGetStatusName"},
      {(void **)&api->create, "cublasLtCreate"},
      {(void **)&api->destroy, "cublasLtDestroy"},
      {(void **)&api->desc_create, "cublasLtMatmulDescCreate"},
      {(void **)&api->desc_destroy, "cublasLtMatmulDescDestroy"},
      {(void **)&api->desc_set, "cublasLtMatmulDescSetAttribute"},
      {(void **)&api->layout_create, "cublasLtMatrixLayoutCreate"},
      {(void **)&api->layout_destroy, "cublasLtMatrixLayoutDestroy"},
      {(void **)&api->pref_create, "cublasLtMatmulPreferenceCreate"},
      {(void **)&api->pref_destroy, "cublasLtMatmulPreferenceDestroy"},
      {(void **)&api->pref_set, "cublasLtMatmulPreferenceSetAttribute"},
      {(void **)&api->heuristic, "cublasLtMatmulAlgoGetHeuristic"},
      {(void **)&api->matmul, "cublasLtMatmul"},
  };
  for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); ++i) {
    *wanted[i].slot = dlsym(library, wanted[i].name);
    if (!*wanted[i].slot) return "the cuBLASLt found lacks a function of the baseline";
  }
  return NULL;
}
