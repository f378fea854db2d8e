#include "torch_call.h"

PyObject *torch_call(const launcher_state *state, const call *c) {
  PyObject *args = PyTuple_New(c->count), *kwargs = NULL, *result = NULL;
  if (!args) return NULL;
  for (Py_ssize_t i = 0; i < c->count; i++) {
    Py_INCREF(c->args[i]);
    PyTuple_SetItem(args, i, c->args[i]);
  }
  const Py_ssize_t named = c->names ? PyTuple_Size(c->names) : 0;
  if (named && !(kwargs = PyDict_New())) goto done;
  for (Py_ssize_t i = 0; i < named; i++)
    if (PyDict_SetItem(kwargs, PyTuple_GetItem(c->names, i), c->args[c->count + i])) goto done;
  result = PyObject_Call(c->linear ? state->torch.linear : state->torch.matmul, args, kwargs);
done:
  Py_DECREF(args);
  Py_XDECREF(kwargs);
  return result;
}

PyObject *torch_fall_back(launcher_state *state, const call *c, reason why, const problem *p) {
  state->fallbacks[why]++;
  // A mismatch is the caller's mistake: torch says so better than STRICT could.
  if (state->strict && why != REASON_MISMATCH) {
    PyObject *described = p ? problem_tuple(p) : Py_None;
    if (!described) return NULL;
    PyObject *none = PyObject_CallFunction(state->torch.refuse, "sOi", REASON_NAMES[why], described,
                                           p ? p->a.device : 0);
    if (p) Py_DECREF(described);
    if (!none) return NULL;
    Py_DECREF(none);
  }
  // Two matrices that fit, without what torch.matmul does to find out (0.1 us). An output may be
  // one that torch refuses, in words that name the function, and a function mode sees which it is.
  if (p && p->a.leading_count == 1 && !c->out && !c->linear && modes_unwatched(&state->modes))
    return PyObject_CallFunctionObjArgs(state->torch.mm, c->a, c->b, NULL);
  return torch_call(state, c);
}

static PyObject *shaped_empty_args(const launcher_state *state, const problem *p) {
  const matrix *a = &p->a;
  const int count = a->leading_count + 1;
  PyObject *size = PyTuple_New(count), *stride = PyTuple_New(count), *args = NULL;
  int64_t step = 1;
  for (int i = count - 1; size && stride && i >= 0; i--) {
    const int64_t extent = i < count - 1 ? a->leading[i] : p->b.cols;
    PyTuple_SetItem(size, i, PyLong_FromLongLong(extent));
    PyTuple_SetItem(stride, i, PyLong_FromLongLong(step));
    step *= extent;
  }
  if (size && stride && !PyErr_Occurred())
    args =
        PyTuple_Pack(3, size, stride, a->type == DL_BFLOAT ? state->torch.bf16 : state->torch.f16);
  Py_XDECREF(size);
  Py_XDECREF(stride);
  return args;
}

// torch.empty on the device of `a`, for when that is not the current one.
static PyObject *empty_elsewhere(const launcher_state *state, PyObject *a, PyObject *empty_args) {
  PyObject *device = PyObject_GetAttr(a, state->name_device);
  PyObject *args = PyTuple_Pack(1, PyTuple_GetItem(empty_args, 0)), *result = NULL;
  PyObject *kwargs = PyDict_New();
  if (device && args && kwargs &&
      !PyDict_SetItem(kwargs, state->name_dtype, PyTuple_GetItem(empty_args, 2)) &&
      !PyDict_SetItem(kwargs, state->name_device, device))
    result = PyObject_Call(state->torch.empty, args, kwargs);
  Py_XDECREF(device);
  Py_XDECREF(args);
  Py_XDECREF(kwargs);
  return result;
}

// Torch's "current device" can differ from the driver's, so where the tensor landed is read back,
// not assumed.
static PyObject *allocate(const launcher_state *state, const call *c, problem *p,
                          PyObject *empty_args, int is_current) {
  PyObject *out = NULL;
  if (is_current && state->torch.empty_current != Py_None) {
    out = PyObject_Call(state->torch.empty_current, empty_args, NULL);
    if (!out) return NULL;
    if (matrix_view(&state->reader, out, 1, &p->c) == MATRIX && p->c.device == p->a.device)
      return out;
    Py_DECREF(out);
  }
  out = empty_elsewhere(state, c->a, empty_args);
  if (out && matrix_view(&state->reader, out, 1, &p->c) != MATRIX) {
    PyErr_SetString(PyExc_RuntimeError, "torch.empty returned a tensor that cannot be viewed");
    Py_DECREF(out);
    return NULL;
  }
  return out;
}

PyObject *torch_allocate(const launcher_state *state, const call *c, problem *p,
                         PyObject *flat_args, int is_current) {
  PyObject *empty_args = p->a.leading_count > 1 ? shaped_empty_args(state, p) : flat_args;
  PyObject *out = empty_args ? allocate(state, c, p, empty_args, is_current) : NULL;
  if (empty_args != flat_args) Py_XDECREF(empty_args);
  return out;
}
