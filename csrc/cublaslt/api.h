// The subset of the cuBLASLt ABI that the tuned baseline needs, declared here so that the build
// needs no CUDA toolkit. Values are the published ABI of libcublasLt 12 and 13; the opaque
// descriptors are only ever handled by pointer.
#ifndef HGEMM_PACKS_CUBLASLT_API_H
#define HGEMM_PACKS_CUBLASLT_API_H

#include <stddef.h>
#include <stdint.h>

enum { LT_SUCCESS = 0, LT_NOT_SUPPORTED = 15 };
enum { LT_R_32F = 0, LT_R_16F = 2, LT_R_16BF = 14 };
enum { LT_COMPUTE_32F = 68 };
enum { LT_OP_N = 0, LT_OP_T = 1 };
enum { LT_DESC_TRANSA = 3, LT_DESC_TRANSB = 4 };
enum {
  LT_PREF_MAX_WORKSPACE_BYTES = 1,
  LT_PREF_MIN_ALIGNMENT_A_BYTES = 5,
  LT_PREF_MIN_ALIGNMENT_D_BYTES = 8,
};

typedef struct {
  uint64_t data[8];
} lt_algo;

typedef struct {
  lt_algo algo;
  size_t workspace_bytes;
  int state;
  float waves;
  int reserved[4];
} lt_heuristic;

// The heuristic writes an array of these, so a wrong size would corrupt memory silently.
_Static_assert(sizeof(lt_heuristic) == 96, "cublasLtMatmulHeuristicResult_t is 96 bytes");

typedef struct {
  size_t (*get_version)(void);
  const char *(*status_name)(int status);
  int (*create)(void **handle);
  int (*destroy)(void *handle);
  int (*desc_create)(void **desc, int compute_type, int scale_type);
  int (*desc_destroy)(void *desc);
  int (*desc_set)(void *desc, int attribute, const void *value, size_t bytes);
  int (*layout_create)(void **layout, int type, uint64_t rows, uint64_t cols, int64_t ld);
  int (*layout_destroy)(void *layout);
  int (*pref_create)(void **pref);
  int (*pref_destroy)(void *pref);
  int (*pref_set)(void *pref, int attribute, const void *value, size_t bytes);
  int (*heuristic)(void *handle, void *desc, void *a, void *b, void *c, void *d, void *pref,
                   int requested, lt_heuristic *results, int *found);
  int (*matmul)(void *handle, void *desc, const void *alpha, const void *a, void *a_layout,
                const void *b, void *b_layout, const void *beta, const void *c, void *c_layout,
                void *d, void *d_layout, const lt_algo *algo, void *workspace,
                size_t workspace_bytes, void *stream);
} lt_api;

// Fills `api` from the first of `names` that can be opened: one already in the process (torch's)
// before one from the search path. Returns NULL, or what was missing (static text).
const char *lt_open(lt_api *api, const char *const *names, size_t count);

#endif
