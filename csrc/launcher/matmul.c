#include "matmul.h"

#include "output.h"
#include "predecessor.h"
#include "torch_product.h"
#include "workspace.h"

// Keyword names of a call site are interned, so the pointer nearly always decides.
static int is_named(PyObject *name, PyObject *interned, const char *text) {
  return name == interned || PyUnicode_CompareWithASCIIString(name, text) == 0;
}

// Finds a, b, out and bias; 0 when the arguments are not those of the function, as torch then says
// itself.
static int parse(const launcher_state *state, call *c) {
  PyObject *const *values = c->args + c->count;
  const Py_ssize_t named = c->names ? PyTuple_Size(c->names) : 0;
  if (c->count > 0) c->a = c->args[0];
  if (c->count > 1) c->b = c->args[1];
  if (c->count > 2 && c->linear) c->bias = c->args[2];
  if (c->count > 2 + c->linear) return 0;
  for (Py_ssize_t i = 0; i < named; i++) {
    PyObject *name = PyTuple_GetItem(c->names, i), **slot;
    if (!c->linear && is_named(name, state->name_out, "out"))
      slot = &c->out;
    else if (is_named(name, state->name_input, "input"))
      slot = &c->a;
    else if (c->linear ? is_named(name, state->name_weight, "weight")
                       : is_named(name, state->name_other, "other"))
      slot = &c->b;
    else if (c->linear && is_named(name, state->name_bias, "bias"))
      slot = &c->bias;
    else
      return 0;
    if (*slot) return 0;
    *slot = values[i];
  }
  if (c->out == Py_None) c->out = NULL;
  if (c->bias == Py_None) c->bias = NULL;
  return c->a && c->b;
}

static PyObject *get(const tensor_getter *getter, PyObject *tensor) {
  return getter->get(getter->descriptor, tensor, (PyObject *)Py_TYPE(tensor));
}

static int requires_grad(const launcher_state *state, PyObject *tensor) {
  const int known = tensor_requires_grad(&state->reader, tensor);
  if (known >= 0) return known;
  PyObject *answer = get(&state->requires_grad, tensor);
  if (!answer) return -1;
  const int yes = answer != Py_False;
  Py_DECREF(answer);
  return yes;
}

// 1 when a gradient would be recorded, 0 when not, -1 with an exception set.
static int records_gradient(const launcher_state *state, const call *c) {
  int grad = modes_grad_enabled(&state->modes);
  if (grad != 1) return grad;
  grad = requires_grad(state, c->b);  // first, for most weights do
  if (!grad) grad = requires_grad(state, c->a);
  if (!grad && c->out) grad = requires_grad(state, c->out);
  if (!grad && c->bias) grad = requires_grad(state, c->bias);
  return grad;
}

// Whether torch's own matmul would do more than multiply. REASON_COUNT when not; an exception is
// left set when asking failed.
static reason check_torch(const launcher_state *state, const call *c) {
  if (modes_quiet(&state->modes) != 1) return REASON_MODE;
  return records_gradient(state, c) ? REASON_AUTOGRAD : REASON_COUNT;
}

// A call whose weight wants a gradient is torch's whatever its problem: asked first of all, where
// that is cheap, training pays for nothing else. STRICT says what is wrong with the problem.
static int trains(const launcher_state *state, const call *c) {
  return !state->strict && is_tensor(state, c->b) && modes_grad_enabled(&state->modes) == 1 &&
         tensor_requires_grad(&state->reader, c->b) == 1;
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
// inference tensor is torch's to refuse, in its own words.
static reason claim_out(const launcher_state *state, PyObject *out, problem *p) {
  if (p->c.is_inference && !modes_inference(&state->modes)) return REASON_MISMATCH;
  // Not before: an output that torch refuses stays as it is, a copy on write not made.
  if (matrix_claim(&state->reader, out, &p->c)) return REASON_OUT;
  return bump_version(state, out) ? REASON_OUT : REASON_COUNT;
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
  return torch_fall_back(state, c, why, p);
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
  if (asked && may_depend(state, dependent, addresses, stream, is_current, &eager)) {
    const workspace_found memory = find_workspace(state, dependent, stream, space);
    if (memory != WORKSPACE_NONE) return memory;
  }
  if (eager && dependent->workspace_bytes && workspace_prepare(state, dependent->device))
    return WORKSPACE_FAILED;
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
    out = output_allocate(state, c, p, is_current);
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
  if (memory == WORKSPACE_FAILED) {
    Py_DECREF(out);
    return NULL;
  }
  if (memory == WORKSPACE_NONE) return withdraw(state, c, p, out, REASON_WORKSPACE, 0);
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
  if (why == REASON_COUNT && c->out) why = claim_out(state, c->out, p);
  if (!PyErr_Occurred())
    result =
        why == REASON_COUNT ? run_kernel(state, c, p, found) : torch_fall_back(state, c, why, p);
  lookup_release(found);
  return result;
}

// A problem without a kernel: torch's product itself where torch would do nothing else, or the call
// as it is.
static PyObject *serve_by_torch(launcher_state *state, const call *c, problem *p, reason why) {
  if (torch_count(state, why, p)) return NULL;
  // torch.mm finds out as little as this, and in inference mode takes 0.3 us less.
  if (!c->linear && !c->out && p->a.leading_count == 1) return torch_call(state, c, p);
  reason odd = c->out ? problem_out(state, c->out, p) : REASON_COUNT;
  if (odd == REASON_COUNT && c->bias) odd = problem_bias(state, c->bias, p);
  if (odd == REASON_COUNT) odd = check_torch(state, c);
  if (odd == REASON_COUNT && c->out) odd = claim_out(state, c->out, p);
  if (PyErr_Occurred()) return NULL;
  PyObject *result = odd == REASON_COUNT ? torch_product(state, c, p) : NULL;
  return result || PyErr_Occurred() ? result : torch_call(state, c, p);
}

// The first call lets Python import torch and hand over its entry points.
static int start(const launcher_state *state) {
  PyObject *none = state->start ? PyObject_CallNoArgs(state->start) : NULL;
  Py_XDECREF(none);
  if (state->start && !none) return -1;
  if (state->started) return 0;
  PyErr_SetString(PyExc_RuntimeError,
                  "this is a second instance of hgemm_packs._C, and the first is in use");
  return -1;
}

static PyObject *product(launcher_state *state, call c) {
  problem p;
  if (!state->started && start(state)) return NULL;
  if (!parse(state, &c)) return torch_call(state, &c, NULL);
  if (!state->exchange) return torch_fall_back(state, &c, REASON_NO_EXCHANGE, NULL);
  if (trains(state, &c)) return torch_fall_back(state, &c, REASON_AUTOGRAD, NULL);
  reason why = problem_describe(state, c.a, c.b, c.linear, &p);
  if (why != REASON_COUNT) return torch_fall_back(state, &c, why, NULL);
  if (c.bias) return serve_by_torch(state, &c, &p, REASON_BIAS);  // no kernel adds one
  answer *found = lookup(state, &p);
  if (!found) return NULL;
  if (found->fallback != REASON_COUNT) return serve_by_torch(state, &c, &p, found->fallback);
  return serve(state, &c, &p, found);
}

PyObject *matmul_py(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names) {
  return product(state_of(module), (call){.args = args, .count = count, .names = names});
}

PyObject *linear_py(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names) {
  return product(state_of(module),
                 (call){.linear = 1, .args = args, .count = count, .names = names});
}
