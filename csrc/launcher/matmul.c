#include "matmul.h"

#include "lookup.h"
#include "predecessor.h"
#include "workspace.h"

// One call as Python made it, and its operands once they are known.
typedef struct {
  PyObject *const *args;
  Py_ssize_t count;
  PyObject *names;
  PyObject *a, *b, *out;  // out: NULL for None
} call;

// Keyword names of a call site are interned, so the pointer nearly always decides.
static int is_named(PyObject *name, PyObject *interned, const char *text) {
  return name == interned || PyUnicode_CompareWithASCIIString(name, text) == 0;
}

// Finds a, b and out; 0 when the arguments are not torch.matmul's, which torch then says itself.
static int parse(const launcher_state *state, call *c) {
  PyObject *const *values = c->args + c->count;
  const Py_ssize_t named = c->names ? PyTuple_Size(c->names) : 0;
  if (c->count > 0) c->a = c->args[0];
  if (c->count > 1) c->b = c->args[1];
  if (c->count > 2) return 0;
  for (Py_ssize_t i = 0; i < named; i++) {
    PyObject *name = PyTuple_GetItem(c->names, i), **slot;
    if (is_named(name, state->name_out, "out"))
      slot = &c->out;
    else if (is_named(name, state->name_input, "input"))
      slot = &c->a;
    else if (is_named(name, state->name_other, "other"))
      slot = &c->b;
    else
      return 0;
    if (*slot) return 0;
    *slot = values[i];
  }
  if (c->out == Py_None) c->out = NULL;
  return c->a && c->b;
}

// torch.matmul with exactly the caller's arguments.
static PyObject *torch_matmul(const launcher_state *state, const call *c) {
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
  result = PyObject_Call(state->torch.matmul, args, kwargs);
done:
  Py_DECREF(args);
  Py_XDECREF(kwargs);
  return result;
}

// A product of two matrices that fit, without what torch.matmul does to find out (0.1 us).
static PyObject *torch_mm(const launcher_state *state, const call *c) {
  if (!c->out) return PyObject_CallFunctionObjArgs(state->torch.mm, c->a, c->b, NULL);
  PyObject *args = PyTuple_Pack(2, c->a, c->b), *kwargs = PyDict_New(), *result = NULL;
  if (args && kwargs && !PyDict_SetItem(kwargs, state->name_out, c->out))
    result = PyObject_Call(state->torch.mm, args, kwargs);
  Py_XDECREF(args);
  Py_XDECREF(kwargs);
  return result;
}

// Hands the call to torch and counts why. `p` is NULL when the operands never made a problem.
static PyObject *fall_back(launcher_state *state, const call *c, reason why, const problem *p) {
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
  // Where a function mode watches, the call has to be matmul's own. So has an error, whose words
  // name the function: a refused call has done nothing yet and is made again under the other name.
  if (p && p->a.leading_count == 1 && modes_unwatched(&state->modes)) {
    PyObject *result = torch_mm(state, c);
    if (result || !PyErr_ExceptionMatches(PyExc_Exception)) return result;
    PyErr_Clear();
  }
  return torch_matmul(state, c);
}

static PyObject *get(const tensor_getter *getter, PyObject *tensor) {
  return getter->get(getter->descriptor, tensor, (PyObject *)Py_TYPE(tensor));
}

static int requires_grad(const launcher_state *state, PyObject *tensor) {
  PyObject *answer = get(&state->requires_grad, tensor);
  if (!answer) return -1;
  const int yes = answer != Py_False;
  Py_DECREF(answer);
  return yes;
}

// Whether torch's own matmul would do more than multiply. REASON_COUNT when not; an exception is
// left set when asking failed.
static reason check_torch(const launcher_state *state, const call *c) {
  if (modes_quiet(&state->modes) != 1) return REASON_MODE;
  int grad = modes_grad_enabled(&state->modes);
  if (grad == 1) {
    grad = requires_grad(state, c->a);
    if (!grad) grad = requires_grad(state, c->b);
    if (!grad && c->out) grad = requires_grad(state, c->out);
  }
  return grad ? REASON_AUTOGRAD : REASON_COUNT;
}

// Autograd must notice that out changed, as after any in-place op. -1 with an exception set.
static int bump_version(const launcher_state *state, PyObject *out) {
  // One iterator serves all calls: nothing here lets go of the GIL or runs Python.
  Py_INCREF(out);
  state->bumped->tensor = out;
  PyObject *none = state->bump(NULL, (PyObject *)state->bumped);
  Py_CLEAR(state->bumped->tensor);  // if it never got as far as to ask for it
  Py_XDECREF(none);
  return none ? 0 : -1;
}

// Whether torch lets out be written; if so, its version is a new one. Outside inference mode an
// inference tensor, the only one without a version, is torch's to refuse, in its own words.
static reason claim_out(const launcher_state *state, PyObject *out) {
  if (!modes_inference(&state->modes)) {
    PyObject *version = get(&state->version, out);
    if (!version) {
      PyErr_Clear();
      return REASON_MISMATCH;
    }
    Py_DECREF(version);
  }
  return bump_version(state, out) ? REASON_OUT : REASON_COUNT;
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
    args = PyTuple_Pack(3, size, stride,
                        a->type_code == DL_BFLOAT ? state->torch.bf16 : state->torch.f16);
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

// The output of a call without out: an ordinary tensor of torch's allocator. Torch's "current
// device" can differ from the driver's, so where the tensor landed is read back, not assumed.
static PyObject *allocate(const launcher_state *state, const call *c, const problem *p,
                          PyObject *empty_args, int is_current, matrix *result) {
  PyObject *out = NULL;
  if (is_current && state->torch.empty_current != Py_None) {
    out = PyObject_Call(state->torch.empty_current, empty_args, NULL);
    if (!out) return NULL;
    if (matrix_view(state->exchange, out, result) == MATRIX && result->device == p->a.device)
      return out;
    Py_DECREF(out);
  }
  out = empty_elsewhere(state, c->a, empty_args);
  if (out && matrix_view(state->exchange, out, result) != MATRIX) {
    PyErr_SetString(PyExc_RuntimeError, "torch.empty returned a tensor that cannot be viewed");
    Py_DECREF(out);
    return NULL;
  }
  return out;
}

// The launch itself, with the GIL released: a full launch queue blocks, and what empties it may be
// a host callback that needs the GIL.
static cu_result launch(const cu_driver *driver, const plan *run, void *const addresses[3],
                        void *parts, cu_stream stream, int is_current) {
  PyThreadState *thread = PyEval_SaveThread();
  cu_result result = is_current ? CU_OK : driver->context_push(run->context);
  if (result == CU_OK) {
    result = plan_run(driver, run, addresses, parts, stream);
    device_leave(driver, !is_current);
  }
  PyEval_RestoreThread(thread);
  return result;
}

static int is_context_current(const cu_driver *driver, cu_context context) {
  cu_context current = NULL;
  return driver->context_current(&current) == CU_OK && current == context;
}

// Gives the call to torch after all; `lasting` when this kernel is of no use any more.
static PyObject *withdraw(launcher_state *state, const call *c, problem *p, PyObject *out,
                          reason why, int lasting) {
  Py_DECREF(out);
  if (lasting) lookup_give_up(state, &p->key, why);
  return fall_back(state, c, why, p);
}

// Memory for a launch of `run`, if it wants any.
static workspace_found find_workspace(launcher_state *state, const plan *run, cu_stream stream,
                                      workspace *space) {
  return run->workspace_bytes ? workspace_take(state, run, stream, space) : WORKSPACE_READY;
}

// Which plan this launch is of, in `run`, and its workspace. A dependent one that finds no memory
// leaves the launch to the problem's own; eager calls see to it that captures find some.
static workspace_found choose_plan(launcher_state *state, const answer *found,
                                   void *const addresses[3], cu_stream stream, int is_current,
                                   const plan **run, workspace *space) {
  const plan *dependent = &found->dependent;
  int eager = 0;
  // No capture takes the legacy stream, on which most eager calls are: it is only asked where
  // memory for captures may have to be made, which one elsewhere can forbid.
  const int asked = dependent->pdl && (stream || dependent->workspace_bytes);
  *run = dependent;
  if (asked && may_depend(state, dependent, addresses, stream, is_current, &eager) &&
      find_workspace(state, dependent, stream, space) == WORKSPACE_READY)
    return WORKSPACE_READY;
  if (eager && dependent->workspace_bytes) workspace_prepare(state, dependent->device);
  *run = &found->own;
  return find_workspace(state, *run, stream, space);
}

// Runs the answer to `p`, which the caller holds.
static PyObject *run_kernel(launcher_state *state, const call *c, problem *p, const answer *found) {
  const cu_driver *driver = &state->driver;
  const plan *run = &found->own;  // of one context and device with the other
  void *stream;
  int is_current = is_context_current(driver, run->context);
  PyObject *out = c->out;
  if (out) {
    Py_INCREF(out);
  } else {
    const int shaped = p->a.leading_count > 1;
    PyObject *empty_args = shaped ? shaped_empty_args(state, p) : found->empty_args;
    if (empty_args) out = allocate(state, c, p, empty_args, is_current, &p->c);
    if (shaped) Py_XDECREF(empty_args);
    if (!out) return NULL;
    // The allocation may have made another device's context current: torch's "current device" need
    // not be the driver's, as in a process that has only used its second GPU.
    is_current = is_context_current(driver, run->context);
  }
  void *const addresses[3] = {p->a.data, p->b.data, p->c.data};
  if (state->exchange->current_stream(state->device_type, run->device, &stream)) {
    Py_DECREF(out);
    return NULL;
  }
  workspace space = {0};
  const workspace_found memory =
      choose_plan(state, found, addresses, stream, is_current, &run, &space);
  if (memory != WORKSPACE_READY)
    return withdraw(state, c, p, out, REASON_WORKSPACE, memory == WORKSPACE_NO_MEMORY);
  if (found->dependent.workspace_bytes || run->workspace_bytes)  // memory may have been made
    is_current = is_context_current(driver, run->context);
  const cu_result code = launch(driver, run, addresses, space.parts, stream, is_current);
  Py_XDECREF(space.owner);
  if (code != CU_OK) {
    const int lasting = code < CU_CAPTURE_FIRST_ERROR || code > CU_CAPTURE_LAST_ERROR;
    return withdraw(state, c, p, out, REASON_LAUNCH_FAILED, lasting);
  }
  state->hits++;
  state->launches++;
  return out;
}

// A problem with a kernel: runs it, unless torch is in a state that only torch can serve.
static PyObject *serve(launcher_state *state, const call *c, problem *p, answer *found) {
  PyObject *result = NULL;
  // Held, because anything asked of torch from here on may run Python (a finalizer is enough), and
  // Python may change the table.
  found->users++;
  reason why = c->out ? problem_out(state, c->out, p) : REASON_COUNT;
  if (why == REASON_COUNT) why = check_torch(state, c);
  if (why == REASON_COUNT && c->out) why = claim_out(state, c->out);
  if (!PyErr_Occurred())
    result = why == REASON_COUNT ? run_kernel(state, c, p, found) : fall_back(state, c, why, p);
  lookup_release(found);
  return result;
}

// The first call lets Python import torch and hand over its entry points.
static int start(void) {
  PyObject *launcher = PyImport_ImportModule("hgemm_packs.launcher");
  PyObject *none = launcher ? PyObject_CallMethod(launcher, "_start", NULL) : NULL;
  Py_XDECREF(launcher);
  Py_XDECREF(none);
  return none ? 0 : -1;
}

PyObject *matmul_py(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names) {
  launcher_state *state = state_of(module);
  call c = {.args = args, .count = count, .names = names};
  problem p;
  if (!state->started && start()) return NULL;
  if (!parse(state, &c)) return torch_matmul(state, &c);
  if (!state->exchange) return fall_back(state, &c, REASON_NO_EXCHANGE, NULL);
  reason why = problem_describe(state, c.a, c.b, &p);
  if (why != REASON_COUNT) return fall_back(state, &c, why, NULL);
  answer *found = lookup(state, &p);
  if (!found) return NULL;
  if (found->fallback != REASON_COUNT) return fall_back(state, &c, found->fallback, &p);
  return serve(state, &c, &p, found);
}
