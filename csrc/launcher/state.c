#include "state.h"

#include <stdlib.h>
#include <string.h>

#include "torch/product.h"

const char *const REASON_NAMES[REASON_COUNT] = {
#define REASON_TEXT(name, text) text,
    REASONS(REASON_TEXT)
#undef REASON_TEXT
};

launcher_state *state_of(PyObject *module) {
  return PyModule_GetState(module);
}

const gpu *state_device(launcher_state *state, long index) {
  if (!state->started || index < 0 || index >= MAX_DEVICES) {
    PyErr_Format(PyExc_RuntimeError, "device %ld cannot be used", index);
    return NULL;
  }
  const char *error = driver_open(&state->driver, state->library);
  if (error) {
    PyErr_SetString(PyExc_RuntimeError, error);
    return NULL;
  }
  cu_result result = device_open(&state->driver, (int)index, &state->devices[index]);
  if (result != CU_OK) {
    PyErr_Format(PyExc_RuntimeError, "device %ld: %s", index, driver_error(&state->driver, result));
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
  return exchange && exchange->current_stream ? exchange : NULL;
}

static int bind_getter(const launcher_state *state, const char *name, tensor_getter *result) {
  PyObject *descriptor = PyObject_GetAttrString(state->torch.tensor, name);
  if (!descriptor) return -1;
  result->descriptor = descriptor;
  result->get = (descrgetfunc)PyType_GetSlot(Py_TYPE(descriptor), Py_tp_descr_get);
  if (result->get) return 0;
  PyErr_Format(PyExc_TypeError, "torch.Tensor.%s is not a descriptor", name);
  return -1;
}

int state_prepare(PyObject *module) {
  launcher_state *state = state_of(module);
  state->name_out = PyUnicode_InternFromString("out");
  state->name_input = PyUnicode_InternFromString("input");
  state->name_other = PyUnicode_InternFromString("other");
  state->name_weight = PyUnicode_InternFromString("weight");
  state->name_bias = PyUnicode_InternFromString("bias");
  state->name_dtype = PyUnicode_InternFromString("dtype");
  state->name_device = PyUnicode_InternFromString("device");
  return PyErr_Occurred() ? -1 : 0;
}

static PyObject *one_tensor_next(PyObject *self) {
  PyObject *tensor = ((one_tensor *)self)->tensor;
  ((one_tensor *)self)->tensor = NULL;
  return tensor;
}

static one_tensor *one_tensor_new(void) {
  PyType_Slot slots[] = {
      {Py_tp_iter, PyObject_SelfIter}, {Py_tp_iternext, one_tensor_next}, {0, NULL}};
  PyType_Spec spec = {"hgemm_packs._C.OneTensor", sizeof(one_tensor), 0, Py_TPFLAGS_DEFAULT, slots};
  PyTypeObject *type = (PyTypeObject *)PyType_FromSpec(&spec);
  one_tensor *self = type ? PyObject_New(one_tensor, type) : NULL;
  if (self) self->tensor = NULL;
  return self;
}

// Every call with out needs it, so it is called without building a tuple for it.
static int bind_bump(launcher_state *state) {
  PyObject *function = state->torch.bump_version;
  state->bumped = one_tensor_new();
  if (!state->bumped) return -1;
  if (Py_TYPE(function) == &PyCFunction_Type && PyCFunction_GetFlags(function) == METH_O)
    state->bump = PyCFunction_GetFunction(function);
  if (state->bump) return 0;
  PyErr_SetString(PyExc_TypeError, "bump_version must be a C function of one argument");
  return -1;
}

PyObject *state_replace(PyObject **place, PyObject *object) {
  PyObject *before = *place;
  *place = object == Py_None ? NULL : Py_NewRef(object);
  Py_XDECREF(before);
  Py_RETURN_NONE;
}

PyObject *state_on_first_call(PyObject *module, PyObject *start) {
  return state_replace(&state_of(module)->start, start);
}

PyObject *state_remember_quiet(PyObject *module, PyObject *unused) {
  (void)unused;
  modes_remember(&state_of(module)->modes);
  Py_RETURN_NONE;
}

static int check_unused(const launcher_state *state) {
  if (!state->started) return 0;
  PyErr_SetString(PyExc_RuntimeError, "the launcher is initialised once per process");
  return -1;
}

PyObject *state_use_torch(PyObject *module, PyObject *args) {
  launcher_state *state = state_of(module);
  PyObject *matmul, *linear, *addmm, *refuse;
  int strict;
  if (check_unused(state) ||
      !PyArg_ParseTuple(args, "OOOOp", &matmul, &linear, &addmm, &refuse, &strict))
    return NULL;
  state->torch.matmul = Py_NewRef(matmul);
  state->torch.linear = Py_NewRef(linear);
  state->torch.addmm = Py_NewRef(addmm);
  state->torch.refuse = Py_NewRef(refuse);
  state->strict = (uint32_t)strict;
  state->started = 1;
  Py_RETURN_NONE;
}

PyObject *state_init(PyObject *module, PyObject *args, PyObject *kwargs) {
  static char *names[] = {
      "driver",       "device_type",  "tensor", "parameter",      "matmul", "mm",
      "linear",       "addmm",        "empty",  "empty_current",  "f16",    "bf16",
      "bump_version", "grad_enabled", "probes", "covered",        "places", "keep",
      "resolve",      "refuse",       "record", "least_recorded", "strict", NULL};
  launcher_state *state = state_of(module);
  torch_api t = {0};
  const char *driver;
  PyObject *grad_enabled, *probes;
  int device_type, covered, strict;
  double least_recorded;
  tensor_reader reader = {0};
  unsigned long long keys[2];
  if (!PyArg_ParseTupleAndKeywords(
          args, kwargs, "$siOOOOOOOOOOOOO!i(nn(KK)(nnn))OOOOdp", names, &driver, &device_type,
          &t.tensor, &t.parameter, &t.matmul, &t.mm, &t.linear, &t.addmm, &t.empty,
          &t.empty_current, &t.f16, &t.bf16, &t.bump_version, &grad_enabled, &PyTuple_Type, &probes,
          &covered, &reader.tensor, &reader.keys, &keys[0], &keys[1], &reader.dims, &reader.offset,
          &reader.type, &t.keep, &t.resolve, &t.refuse, &t.record, &least_recorded, &strict))
    return NULL;
  if (check_unused(state)) return NULL;
  PyObject **members = (PyObject **)&t;
  for (size_t i = 0; i < sizeof t / sizeof *members; i++)
    Py_INCREF(members[i]);
  state->torch = t;
  state->device_type = device_type;
  state->least_recorded = least_recorded;
  state->strict = (uint32_t)strict;
  reader.ordinary[0] = keys[0], reader.ordinary[1] = keys[1];
  if (reader_bind(&reader, device_type)) state->exchange = find_exchange(t.tensor);
  products_bind(&state->products, device_type == DL_CUDA);
  state->reader = reader;
  if (modes_bind(&state->modes, probes, covered, grad_enabled) ||
      bind_getter(state, "requires_grad", &state->requires_grad) || bind_bump(state))
    return NULL;
  state->library = strdup(driver);
  if (!state->library) return PyErr_NoMemory();
  state->started = 1;
  return PyBool_FromLong(state->exchange != NULL);
}
