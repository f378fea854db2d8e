// hgemm_packs._C: the launcher. A table of contents; each entry lives in the file named beside it.
//
// The module state is never freed: torch's objects and loaded kernels are needed as long as the
// process can call matmul, and captured graphs may replay kernels even later.
#include "cuda/kernel_type.h"
#include "cuda/workspace.h"
#include "grouped.h"
#include "lookup.h"
#include "matmul.h"
#include "override.h"
#include "predictor.h"
#include "unmeasured.h"

static PyObject *device_info(PyObject *module, PyObject *index) {
  const long ordinal = PyLong_AsLong(index);
  if (ordinal == -1 && PyErr_Occurred()) return NULL;
  launcher_state *state = state_of(module);
  const gpu *device = state_device(state, ordinal);
  if (!device) return NULL;
  const int *pci = device->pci;
  return Py_BuildValue("(siiiiiii(iii))", device->name, device->major, device->minor,
                       device->sm_count, device->l2_bytes, state->driver.version,
                       device->memory_khz, device->memory_bits, pci[0], pci[1], pci[2]);
}

static PyObject *counters(PyObject *module, PyObject *unused) {
  (void)unused;
  const launcher_state *state = state_of(module);
  PyObject *fallbacks = PyDict_New();
  for (int i = 0; fallbacks && i < REASON_COUNT; i++) {
    PyObject *count = PyLong_FromUnsignedLongLong(state->fallbacks[i]);
    if (!count || PyDict_SetItemString(fallbacks, REASON_NAMES[i], count)) Py_CLEAR(fallbacks);
    Py_XDECREF(count);
  }
  if (!fallbacks) return NULL;
  return Py_BuildValue("{sKsKsKsN}", "hits", (unsigned long long)state->hits, "launches",
                       (unsigned long long)state->launches, "predicted",
                       (unsigned long long)state->predicted, "fallbacks", fallbacks);
}

static PyObject *reset_table(PyObject *module, PyObject *unused) {
  (void)unused;
  lookup_reset(state_of(module));
  Py_RETURN_NONE;
}

static PyObject *set(uint32_t *what, uint32_t value, PyObject *on) {
  const int yes = PyObject_IsTrue(on);
  if (yes < 0) return NULL;
  *what = yes ? value : 0;
  Py_RETURN_NONE;
}

static PyObject *set_strict(PyObject *module, PyObject *strict) {
  return set(&state_of(module)->strict, 1, strict);
}

// set_off(off): whether every call is torch's from now on, in all threads; also before `init`.
static PyObject *set_off(PyObject *module, PyObject *off) {
  return set(&state_of(module)->off, 1, off);
}

// set_invariant(invariant): whether calls from now on, in all threads, are batch-invariant or
// raise.
static PyObject *set_invariant(PyObject *module, PyObject *invariant) {
  return set(&state_of(module)->invariant, INVARIANT_KEY, invariant);
}

// on_fallback(note): tells `note` of the first fallback for each reason.
static PyObject *on_fallback(PyObject *module, PyObject *note) {
  return state_replace(&state_of(module)->note, note);
}

// record_calls(record): tells `record` of the problem of every call that is looked up; of none more
// with None.
static PyObject *record_calls(PyObject *module, PyObject *record) {
  return state_replace(&state_of(module)->record, record);
}

// describe(a, b, addend, epilogue): what matmul makes of two operands, and a kernel with an
// epilogue of these, for explain: a problem or a reason.
static PyObject *describe(PyObject *module, PyObject *args) {
  const launcher_state *state = state_of(module);
  PyObject *a, *b, *addend, *epilogue;
  problem p;
  if (!PyArg_ParseTuple(args, "OOOO", &a, &b, &addend, &epilogue)) return NULL;
  const int how = finish_named(epilogue);
  if (how < 0) return NULL;
  reason why = state->exchange ? problem_describe(state, a, b, 0, &p) : REASON_NO_EXCHANGE;
  if (why == REASON_COUNT)
    why = problem_finish_with(state, addend == Py_None ? NULL : addend, (finish)how, &p);
  return why == REASON_COUNT ? problem_tuple(&p) : PyUnicode_FromString(REASON_NAMES[why]);
}

#define FUNCTION(f) (PyCFunction)(void (*)(void))(f)

static PyMethodDef METHODS[] = {
    {"matmul", FUNCTION(matmul_py), METH_FASTCALL | METH_KEYWORDS,  // matmul.c
     "matmul($module, input, other, *, out=None)\n--\n\n"
     "torch.matmul(input, other, out=out), run by a kernel of a pack where that kernel was\n"
     "measured faster than cuBLAS on this GPU model, and by torch everywhere else.\n\n"
     "A kernel runs [M, K] @ [K, N] and [..., K] @ [K, N], and batches [..., M, K] @\n"
     "[..., K, N] of any strides, float16 or bfloat16, on one CUDA device. It adds up in float32\n"
     "and returns the operands' type. Where a gradient is recorded a kernel runs products from\n"
     "100 GFLOP on that are no batch, and backward multiplies by `matmul`, too. Any other call\n"
     "that torch.matmul takes is taken, and is torch's. `explain` says which way a call goes,\n"
     "and why.\n\n"
     "`out` is written and returned. Raises what torch.matmul raises, and FallbackError where\n"
     "HGEMM_PACKS_STRICT=1 is set and torch would have run the call.\n\n"
     "Example:\n\n"
     "    x = torch.randn(64, 4096, device='cuda', dtype=torch.float16)\n"
     "    weight = torch.randn(1024, 4096, device='cuda', dtype=torch.float16)\n"
     "    y = matmul(x, weight.t())  # [64, 1024]"},
    {"linear", FUNCTION(linear_py), METH_FASTCALL | METH_KEYWORDS,  // matmul.c
     "linear($module, input, weight, bias=None)\n--\n\n"
     "torch.nn.functional.linear(input, weight, bias), run as matmul runs it. With a bias a\n"
     "kernel runs it where one that adds it was measured, and torch everywhere else."},
    {"addmm", FUNCTION(addmm_py), METH_FASTCALL | METH_KEYWORDS, NULL},        // matmul.c
    {"fused_linear", FUNCTION(fused_linear_py), METH_FASTCALL, NULL},          // matmul.c
    {"describe_grouped", FUNCTION(grouped_describe_py), METH_FASTCALL, NULL},  // grouped.c
    {"launch_grouped", FUNCTION(grouped_launch_py), METH_FASTCALL, NULL},      // grouped.c
    {"fall_back_grouped", grouped_fall_back_py, METH_O, NULL},                 // grouped.c
    {"init", FUNCTION(state_init), METH_VARARGS | METH_KEYWORDS, NULL},        // state.c
    {"load", FUNCTION(kernel_load_py), METH_VARARGS | METH_KEYWORDS, NULL},    // kernel_type.c
    {"launch", FUNCTION(kernel_launch_py), METH_FASTCALL, NULL},               // kernel_type.c
    {"use_torch", state_use_torch, METH_VARARGS, NULL},                        // state.c
    {"on_first_call", state_on_first_call, METH_O, NULL},                      // state.c
    {"remember_quiet", state_remember_quiet, METH_NOARGS, NULL},               // state.c
    {"relaxed", workspace_relaxed, METH_O, NULL},                              // workspace.c
    {"override", override_py, METH_O, NULL},                                   // override.c
    {"serve_program", override_serve, METH_O, NULL},                           // override.c
    {"describe", describe, METH_VARARGS, NULL},
    {"device_info", device_info, METH_O, NULL},
    {"counters", counters, METH_NOARGS, NULL},
    {"reset_table", reset_table, METH_NOARGS, NULL},
    {"set_strict", set_strict, METH_O, NULL},
    {"set_off", set_off, METH_O, NULL},
    {"set_invariant", set_invariant, METH_O, NULL},
    {"on_fallback", on_fallback, METH_O, NULL},
    {"record_calls", record_calls, METH_O, NULL},
    {"know_rows", unmeasured_know_rows, METH_VARARGS, NULL},                 // unmeasured.c
    {"know_predictor", unmeasured_know_predictor, METH_VARARGS, NULL},       // unmeasured.c
    {"forget_predictors", unmeasured_forget_predictors, METH_NOARGS, NULL},  // unmeasured.c
    {"predictor", predictor_py, METH_VARARGS, NULL},                         // predictor.c
    {"predict", predict_py, METH_VARARGS, NULL},                             // predictor.c
    {"features", features_py, METH_VARARGS, NULL},                           // predictor.c
    {"floor_us", floor_us_py, METH_VARARGS, NULL},                           // predictor.c
    {0},
};

static PyModuleDef_Slot SLOTS[] = {
    {Py_mod_exec, state_prepare},
    {Py_mod_exec, kernel_type_add},
    {0, NULL},
};

static PyModuleDef MODULE = {
    PyModuleDef_HEAD_INIT, .m_name = "hgemm_packs._C", .m_size = sizeof(launcher_state),
    .m_methods = METHODS,  .m_slots = SLOTS,
};

PyMODINIT_FUNC PyInit__C(void) {
  return PyModuleDef_Init(&MODULE);
}
