#include "state.h"

#include <stdlib.h>
#include <string.h>

const char *const REASON_NAMES[REASON_COUNT] = {
#define REASON_TEXT(name, text) text,
    REASONS(REASON_TEXT)
#undef REASON_TEXT
};

launcher_state *state_of(PyObject *module) {
  return PyModule_GetState(module);
}

static void probe_bind(probe *p, PyObject *function, PyObject *quiet, PyObject *argument) {
  Py_INCREF(function);
  Py_INCREF(quiet);
  Py_XINCREF(argument);
  *p = (probe){.function = function, .quiet = quiet, .argument = argument};
  if (Py_TYPE(function) != &PyCFunction_Type) return;
  // METH_COEXIST only says how a type's method table is filled.
  const int flags = PyCFunction_GetFlags(function) & ~METH_COEXIST;
  if (flags != (argument ? METH_O : METH_NOARGS)) return;
  p->direct = PyCFunction_GetFunction(function);
  p->self = PyCFunction_GetSelf(function);
}

int probe_quiet(const probe *p) {
  // The quiet answers are singletons (False, None, small integers), so identity decides.
  PyObject *answer = p->direct ? p->direct(p->self, p->argument)
                               : PyObject_CallFunctionObjArgs(p->function, p->argument, NULL);
  if (!answer) return -1;
  const int quiet = answer == p->quiet;
  Py_DECREF(answer);
  return quiet;
}

const gpu *state_device(launcher_state *state, int index) {
  if (!state->started || index < 0 || index >= MAX_DEVICES) {
    PyErr_Format(PyExc_RuntimeError, "device %d cannot be used", index);
    return NULL;
  }
  const char *error = driver_open(&state->driver, state->library);
  if (error) {
    PyErr_SetString(PyExc_RuntimeError, error);
    return NULL;
  }
  cu_result result = device_open(&state->driver, index, &state->devices[index]);
  if (result != CU_OK) {
    PyErr_Format(PyExc_RuntimeError, "device %d: %s", index, driver_error(&state->driver, result));
    return NULL;
  }
  return &state->devices[index];
}

// The exchange table of torch.Tensor, or NULL without an exception where torch has none that is
// laid out as dlpack.h says.
static const dl_exchange *find_exchange(PyObject *tensor) {
  PyObject *capsule = PyObject_GetAttrString(tensor, "__dlpack_c_exchange_api__");
  const dl_exchange_header *header = capsule ? PyCapsule_GetPointer(capsule, DL_CAPSULE) : NULL;
  Py_XDECREF(capsule);
  PyErr_Clear();
  while (header && header->major != DL_MAJOR)
    header = header->previous;
  const dl_exchange *exchange = (const dl_exchange *)header;
  return exchange && exchange->view && exchange->current_stream ? exchange : NULL;
}

static int bind_probes(launcher_state *state, PyObject *tuples) {
  const Py_ssize_t count = PyTuple_Size(tuples);
  if (count < 0) return -1;
  if (count > MAX_PROBES) {
    PyErr_SetString(PyExc_ValueError, "too many probes");
    return -1;
  }
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject *function, *quiet, *argument = NULL;
    if (!PyArg_ParseTuple(PyTuple_GetItem(tuples, i), "OO|O", &function, &quiet, &argument))
      return -1;
    probe_bind(&state->probes[state->probe_count++], function, quiet, argument);
  }
  return 0;
}

static int bind_requires_grad(launcher_state *state) {
  PyObject *descriptor = PyObject_GetAttrString(state->torch.tensor, "requires_grad");
  if (!descriptor) return -1;
  state->requires_grad_descriptor = descriptor;
  state->requires_grad = (descrgetfunc)PyType_GetSlot(Py_TYPE(descriptor), Py_tp_descr_get);
  if (state->requires_grad) return 0;
  PyErr_SetString(PyExc_TypeError, "torch.Tensor.requires_grad is not a descriptor");
  return -1;
}

int state_prepare(PyObject *module) {
  launcher_state *state = state_of(module);
  state->name_out = PyUnicode_InternFromString("out");
  state->name_input = PyUnicode_InternFromString("input");
  state->name_other = PyUnicode_InternFromString("other");
  state->name_dtype = PyUnicode_InternFromString("dtype");
  state->name_device = PyUnicode_InternFromString("device");
  return PyErr_Occurred() ? -1 : 0;
}

static int check_unused(const launcher_state *state) {
  if (!state->started) return 0;
  PyErr_SetString(PyExc_RuntimeError, "the launcher is initialised once per process");
  return -1;
}

PyObject *state_use_torch(PyObject *module, PyObject *args) {
  launcher_state *state = state_of(module);
  PyObject *matmul, *refuse;
  if (check_unused(state) || !PyArg_ParseTuple(args, "OO", &matmul, &refuse)) return NULL;
  Py_INCREF(matmul);
  Py_INCREF(refuse);
  state->torch.matmul = matmul;
  state->torch.refuse = refuse;
  state->started = 1;
  Py_RETURN_NONE;
}

PyObject *state_init(PyObject *module, PyObject *args, PyObject *kwargs) {
  static char *names[] = {"driver",    "device_type", "tensor",       "parameter",
                          "matmul",    "mm",          "empty",        "empty_current",
                          "f16",       "bf16",        "bump_version", "grad_enabled",
                          "inference", "probes",      "resolve",      "refuse",
                          NULL};
  launcher_state *state = state_of(module);
  torch_api t = {0};
  const char *driver;
  PyObject *grad_enabled, *inference, *probes;
  int device_type;
  if (!PyArg_ParseTupleAndKeywords(
          args, kwargs, "$siOOOOOOOOOOOO!OO", names, &driver, &device_type, &t.tensor, &t.parameter,
          &t.matmul, &t.mm, &t.empty, &t.empty_current, &t.f16, &t.bf16, &t.bump_version,
          &grad_enabled, &inference, &PyTuple_Type, &probes, &t.resolve, &t.refuse))
    return NULL;
  if (check_unused(state)) return NULL;
  PyObject **members = (PyObject **)&t;
  for (size_t i = 0; i < sizeof t / sizeof *members; i++)
    Py_INCREF(members[i]);
  state->torch = t;
  state->probe_count = 0;
  state->device_type = device_type;
  state->exchange = find_exchange(t.tensor);
  probe_bind(&state->grad_enabled, grad_enabled, Py_False, NULL);
  probe_bind(&state->inference, inference, Py_False, NULL);
  if (bind_probes(state, probes) || bind_requires_grad(state)) return NULL;
  state->library = strdup(driver);
  if (!state->library) return PyErr_NoMemory();
  state->started = 1;
  return PyBool_FromLong(state->exchange != NULL);
}
