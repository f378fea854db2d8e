#include "torch/autograd.h"

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

reason torch_check(const launcher_state *state, const call *c) {
  if (modes_quiet(&state->modes) != 1) return REASON_MODE;
  return records_gradient(state, c) ? REASON_AUTOGRAD : REASON_COUNT;
}

int torch_trains(const launcher_state *state, const call *c) {
  return !state->strict && !state->invariant && is_tensor(state, c->b) &&
         tensor_requires_grad(&state->reader, c->b) == 1 && modes_records(&state->modes) &&
         !(is_tensor(state, c->a) &&
           tensor_work(&state->reader, c->a, c->b) >= state->least_recorded);
}

PyObject *torch_record(const launcher_state *state, const call *c, const problem *p) {
  const double work = 2.0 * p->shape.m * p->shape.n * p->shape.k;
  const int pays = work >= state->least_recorded || problem_is_invariant(p);
  if (!pays || p->shape.batches || c->out || c->bias || p->a.is_inference || p->b.is_inference)
    return NULL;
  PyObject *result = PyObject_CallFunctionObjArgs(state->torch.record, c->a, c->b,
                                                  c->linear ? Py_True : Py_False, NULL);
  if (result == Py_None) Py_CLEAR(result);
  return result;
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

reason torch_claim_out(const launcher_state *state, PyObject *out, problem *p) {
  if (p->c.is_inference && !modes_inference(&state->modes)) return REASON_MISMATCH;
  // Not before: an output that torch refuses stays as it is, a copy on write not made.
  if (matrix_claim(&state->reader, tensor_in(&state->reader, out), &p->c)) return REASON_OUT;
  return bump_version(state, out) ? REASON_OUT : REASON_COUNT;
}
