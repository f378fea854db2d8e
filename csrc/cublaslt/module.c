// hgemm_packs._cublaslt: every algorithm that cuBLASLt's heuristic offers for a problem, callable
// one by one on torch's own copy of the library. Used by hgemm_packs.measure.baselines as the
// strongest opponent a pack has to beat; `matmul` never goes through here.
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdlib.h>

#include "plan.h"

enum { MAX_NAMES = 8, MAX_LIMITS = 16 };

typedef struct {
  lt_api api;
  void *lt;
} handle_t;

typedef struct {
  PyObject *owner;  // the handle's capsule, kept alive by the plan
  handle_t *handle;
  lt_plan plan;
} plan_t;

static const char HANDLE[] = "hgemm_packs._cublaslt.handle";
static const char PLAN[] = "hgemm_packs._cublaslt.plan";

static PyObject *fail(const lt_api *api, const char *where, int status) {
  const char *name = status < 0 ? "out of memory" : api->status_name(status);
  return PyErr_Format(PyExc_RuntimeError, "%s: %s (%d)", where, name, status);
}

static void handle_free(PyObject *capsule) {
  handle_t *handle = PyCapsule_GetPointer(capsule, HANDLE);
  if (!handle) return;
  if (handle->lt) handle->api.destroy(handle->lt);
  free(handle);
}

static void plan_free(PyObject *capsule) {
  plan_t *plan = PyCapsule_GetPointer(capsule, PLAN);
  if (!plan) return;
  lt_plan_release(&plan->handle->api, &plan->plan);
  Py_DECREF(plan->owner);
  free(plan);
}

static PyObject *make_handle(PyObject *self, PyObject *args) {
  (void)self;
  const char *names[MAX_NAMES];
  Py_ssize_t count = PyTuple_Size(args);
  if (count < 1 || count > MAX_NAMES)
    return PyErr_Format(PyExc_TypeError, "handle() takes 1 to 8 library names");
  for (Py_ssize_t i = 0; i < count; ++i) {
    names[i] = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(args, i), NULL);
    if (!names[i]) return NULL;
  }
  handle_t *handle = calloc(1, sizeof(*handle));
  if (!handle) return PyErr_NoMemory();
  const char *missing = lt_open(&handle->api, names, (size_t)count);
  if (missing) {
    free(handle);
    return PyErr_Format(PyExc_RuntimeError, "%s", missing);
  }
  int status = handle->api.create(&handle->lt);
  if (status != LT_SUCCESS) {
    fail(&handle->api, "cublasLtCreate", status);
    free(handle);
    return NULL;
  }
  PyObject *capsule = PyCapsule_New(handle, HANDLE, handle_free);
  if (!capsule) {
    handle->api.destroy(handle->lt);
    free(handle);
  }
  return capsule;
}

static PyObject *version(PyObject *self, PyObject *capsule) {
  (void)self;
  handle_t *handle = PyCapsule_GetPointer(capsule, HANDLE);
  return handle ? PyLong_FromSize_t(handle->api.get_version()) : NULL;
}

static int read_limits(PyObject *tuple, uint64_t *limits) {
  Py_ssize_t count = PyTuple_Size(tuple);
  if (count < 1 || count > MAX_LIMITS) {
    PyErr_SetString(PyExc_ValueError, "1 to 16 workspace limits are taken");
    return -1;
  }
  for (Py_ssize_t i = 0; i < count; ++i) {
    limits[i] = PyLong_AsUnsignedLongLong(PyTuple_GetItem(tuple, i));
    if (PyErr_Occurred()) return -1;
  }
  return (int)count;
}

static PyObject *make_plan(PyObject *self, PyObject *args) {
  (void)self;
  PyObject *owner, *tuple;
  lt_problem p = {0};
  int bf16;
  unsigned long long m, n, k, alignment;
  long long lda, ldb, ldc;
  uint64_t limits[MAX_LIMITS];
  if (!PyArg_ParseTuple(args, "OpKKKppLLLKO!", &owner, &bf16, &m, &n, &k, &p.a_transposed,
                        &p.b_transposed, &lda, &ldb, &ldc, &alignment, &PyTuple_Type, &tuple))
    return NULL;
  handle_t *handle = PyCapsule_GetPointer(owner, HANDLE);
  int limit_count = handle ? read_limits(tuple, limits) : -1;
  if (limit_count < 0) return NULL;
  p.type = bf16 ? LT_R_16BF : LT_R_16F;
  p.m = m, p.n = n, p.k = k, p.lda = lda, p.ldb = ldb, p.ldc = ldc;
  p.alignment = (uint32_t)alignment;
  plan_t *plan = calloc(1, sizeof(*plan));
  if (!plan) return PyErr_NoMemory();
  const char *where = "";
  int status = lt_plan_make(&handle->api, handle->lt, &p, limits, limit_count, &plan->plan, &where);
  PyObject *capsule = status == LT_SUCCESS ? PyCapsule_New(plan, PLAN, plan_free) : NULL;
  if (!capsule) {
    lt_plan_release(&handle->api, &plan->plan);
    free(plan);
    return status == LT_SUCCESS ? NULL : fail(&handle->api, where, status);
  }
  Py_INCREF(owner);
  plan->owner = owner;
  plan->handle = handle;
  return capsule;
}

static PyObject *algorithms(PyObject *self, PyObject *capsule) {
  (void)self;
  plan_t *plan = PyCapsule_GetPointer(capsule, PLAN);
  PyObject *list = plan ? PyList_New(plan->plan.count) : NULL;
  if (!list) return NULL;
  for (int i = 0; i < plan->plan.count; ++i) {
    const lt_heuristic *offer = &plan->plan.offers[i];
    PyObject *item = Py_BuildValue("Kdy#", (unsigned long long)offer->workspace_bytes, offer->waves,
                                   (const char *)&offer->algo, (Py_ssize_t)sizeof(offer->algo));
    if (!item || PyList_SetItem(list, i, item) < 0) {
      Py_DECREF(list);
      return NULL;
    }
  }
  return list;
}

static PyObject *matmul(PyObject *self, PyObject *args) {
  (void)self;
  PyObject *capsule;
  int index;
  unsigned long long a, b, c, workspace, workspace_bytes, stream;
  if (!PyArg_ParseTuple(args, "OiKKKKKK", &capsule, &index, &a, &b, &c, &workspace,
                        &workspace_bytes, &stream))
    return NULL;
  plan_t *plan = PyCapsule_GetPointer(capsule, PLAN);
  if (!plan) return NULL;
  if (index < 0 || index >= plan->plan.count) {
    PyErr_Format(PyExc_IndexError, "algorithm %d of %d", index, plan->plan.count);
    return NULL;
  }
  if (plan->plan.offers[index].workspace_bytes > workspace_bytes)
    return PyErr_Format(PyExc_ValueError, "the workspace is smaller than the algorithm needs");
  int status =
      lt_plan_run(&plan->handle->api, plan->handle->lt, &plan->plan, index,
                  (const void *)(uintptr_t)a, (const void *)(uintptr_t)b, (void *)(uintptr_t)c,
                  (void *)(uintptr_t)workspace, (size_t)workspace_bytes, (void *)(uintptr_t)stream);
  if (status != LT_SUCCESS) return fail(&plan->handle->api, "cublasLtMatmul", status);
  Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"handle", make_handle, METH_VARARGS,
     "handle(*library_names): open the library, make a handle"},
    {"version", version, METH_O, "version(handle) -> cublasLtGetVersion()"},
    {"plan", make_plan, METH_VARARGS,
     "plan(handle, bf16, m, n, k, a_transposed, b_transposed, lda, ldb, ldc, alignment, limits)"},
    {"algorithms", algorithms, METH_O, "algorithms(plan) -> [(workspace_bytes, waves, algo), ...]"},
    {"matmul", matmul, METH_VARARGS,
     "matmul(plan, index, a, b, c, workspace, workspace_bytes, stream)"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_cublaslt", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__cublaslt(void) {
  return PyModule_Create(&module);
}
