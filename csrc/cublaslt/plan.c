// Row-major operands through a column-major library: a row-major [rows, cols] buffer is its own
// transpose in column-major terms, so c = a b becomes c^T = b^T a^T with b as the first operand and
// nothing is copied. Accumulation and scaling are fp32, as in torch.
#include "plan.h"

#include <stdlib.h>
#include <string.h>

#define TRY(call, name)          \
  do {                           \
    int status_ = (call);        \
    if (status_ != LT_SUCCESS) { \
      *where = (name);           \
      return status_;            \
    }                            \
  } while (0)

static int describe(const lt_api *api, const lt_problem *p, lt_plan *plan, const char **where) {
  const int32_t first_op = p->b_transposed ? LT_OP_T : LT_OP_N;
  const int32_t second_op = p->a_transposed ? LT_OP_T : LT_OP_N;
  TRY(api->desc_create(&plan->desc, LT_COMPUTE_32F, LT_R_32F), "cublasLtMatmulDescCreate");
  TRY(api->desc_set(plan->desc, LT_DESC_TRANSA, &first_op, sizeof(first_op)),
      "cublasLtMatmulDescSetAttribute");
  TRY(api->desc_set(plan->desc, LT_DESC_TRANSB, &second_op, sizeof(second_op)),
      "cublasLtMatmulDescSetAttribute");
  // Layouts take the stored shape: contiguous extent first.
  TRY(api->layout_create(&plan->first, p->type, p->b_transposed ? p->k : p->n,
                         p->b_transposed ? p->n : p->k, p->ldb),
      "cublasLtMatrixLayoutCreate(b)");
  TRY(api->layout_create(&plan->second, p->type, p->a_transposed ? p->m : p->k,
                         p->a_transposed ? p->k : p->m, p->lda),
      "cublasLtMatrixLayoutCreate(a)");
  TRY(api->layout_create(&plan->out, p->type, p->n, p->m, p->ldc), "cublasLtMatrixLayoutCreate(c)");
  return LT_SUCCESS;
}

static int known(const lt_plan *plan, const lt_algo *algo) {
  for (int i = 0; i < plan->count; ++i)
    if (memcmp(&plan->offers[i].algo, algo, sizeof(*algo)) == 0) return 1;
  return 0;
}

static int ask(const lt_api *api, void *handle, void *pref, uint64_t limit, lt_plan *plan,
               const char **where) {
  lt_heuristic results[LT_REQUESTED];
  int found = 0;
  memset(results, 0, sizeof(results));
  TRY(api->pref_set(pref, LT_PREF_MAX_WORKSPACE_BYTES, &limit, sizeof(limit)),
      "cublasLtMatmulPreferenceSetAttribute(workspace)");
  int status = api->heuristic(handle, plan->desc, plan->first, plan->second, plan->out, plan->out,
                              pref, LT_REQUESTED, results, &found);
  // No algorithm under this limit is an answer, not a failure: another limit may have one.
  if (status == LT_NOT_SUPPORTED) return LT_SUCCESS;
  TRY(status, "cublasLtMatmulAlgoGetHeuristic");
  for (int i = 0; i < found; ++i)
    if (results[i].state == LT_SUCCESS && !known(plan, &results[i].algo))
      plan->offers[plan->count++] = results[i];
  return LT_SUCCESS;
}

static int ask_all(const lt_api *api, void *handle, void *pref, const lt_problem *p,
                   const uint64_t *limits, int limit_count, lt_plan *plan, const char **where) {
  for (int id = LT_PREF_MIN_ALIGNMENT_A_BYTES; id <= LT_PREF_MIN_ALIGNMENT_D_BYTES; ++id)
    TRY(api->pref_set(pref, id, &p->alignment, sizeof(p->alignment)),
        "cublasLtMatmulPreferenceSetAttribute(alignment)");
  for (int i = 0; i < limit_count; ++i) {
    int status = ask(api, handle, pref, limits[i], plan, where);
    if (status != LT_SUCCESS) return status;
  }
  return LT_SUCCESS;
}

int lt_plan_make(const lt_api *api, void *handle, const lt_problem *problem, const uint64_t *limits,
                 int limit_count, lt_plan *plan, const char **where) {
  memset(plan, 0, sizeof(*plan));
  void *pref = NULL;
  plan->offers = calloc((size_t)limit_count * LT_REQUESTED, sizeof(lt_heuristic));
  if (!plan->offers) {
    *where = "calloc";
    return -1;
  }
  int status = describe(api, problem, plan, where);
  if (status != LT_SUCCESS) return status;
  TRY(api->pref_create(&pref), "cublasLtMatmulPreferenceCreate");
  status = ask_all(api, handle, pref, problem, limits, limit_count, plan, where);
  api->pref_destroy(pref);
  return status;
}

void lt_plan_release(const lt_api *api, lt_plan *plan) {
  if (plan->first) api->layout_destroy(plan->first);
  if (plan->second) api->layout_destroy(plan->second);
  if (plan->out) api->layout_destroy(plan->out);
  if (plan->desc) api->desc_destroy(plan->desc);
  free(plan->offers);
  memset(plan, 0, sizeof(*plan));
}

int lt_plan_run(const lt_api *api, void *handle, const lt_plan *plan, int index, const void *a,
                const void *b, void *c, void *workspace, size_t workspace_bytes, void *stream) {
  const float one = 1.0f, zero = 0.0f;
  return api->matmul(handle, plan->desc, &one, b, plan->first, a, plan->second, &zero, c, plan->out,
                     c, plan->out, &plan->offers[index].algo, workspace, workspace_bytes, stream);
}
