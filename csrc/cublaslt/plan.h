// One problem prepared for cuBLASLt: descriptors plus every distinct algorithm its heuristic
// offers.
#ifndef HGEMM_PACKS_CUBLASLT_PLAN_H
#define HGEMM_PACKS_CUBLASLT_PLAN_H

#include "api.h"

// cuBLASLt returns at most 8 results a query today, however many are asked for.
enum { LT_REQUESTED = 32 };

typedef struct {
  int type;               // LT_R_16F or LT_R_16BF, of a, b and c
  uint64_t m, n, k;       // row-major product c[m, n] = a b
  int a_transposed;       // a is stored [k, m]
  int b_transposed;       // b is stored [n, k]
  int64_t lda, ldb, ldc;  // leading strides in elements, as stored
  uint32_t alignment;     // bytes, holds for all three pointers of every later call
} lt_problem;

typedef struct {
  void *desc, *first, *second, *out;
  lt_heuristic *offers;  // distinct by algorithm bytes, in the heuristic's order
  int count;
} lt_plan;

// Fills `plan`, asking once per workspace limit (bytes). On failure returns the cuBLASLt status and
// names the call in *where; the plan must be released either way.
int lt_plan_make(const lt_api *api, void *handle, const lt_problem *problem, const uint64_t *limits,
                 int limit_count, lt_plan *plan, const char **where);
void lt_plan_release(const lt_api *api, lt_plan *plan);

// c = a b with offer `index`; pointers are device addresses.
int lt_plan_run(const lt_api *api, void *handle, const lt_plan *plan, int index, const void *a,
                const void *b, void *c, void *workspace, size_t workspace_bytes, void *stream);

#endif
