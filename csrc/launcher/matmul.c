#include "matmul.h"

#include "override.h"
#include "run.h"
#include "torch/autograd.h"
#include "torch/fallback.h"
#include "torch/output.h"
#include "torch/product.h"

// Runs the answer to `p`, which the caller holds: the output, or NULL, with an exception or with
// why it is not done.
static PyObject *run(launcher_state *state, const call *c, problem *p, const answer *found,
                     reason *why) {
  PyObject *out = output_of(state, c, p);
  if (!out) return NULL;
  *why = run_kernel(state, p, found);
  if (*why != REASON_COUNT) Py_CLEAR(out);
  return out;
}

// A problem with a kernel: runs it, unless torch is in a state that only torch can serve.
static PyObject *serve(launcher_state *state, const call *c, problem *p, answer *found) {
  PyObject *result = NULL;
  // Held, because anything asked of torch from here on may run Python (a finalizer is enough), and
  // Python may change the table.
  found->users++;
  reason why = c->out ? problem_out(state, c->out, lookup_bytes_of_c(found), p) : REASON_COUNT;
  if (why == REASON_COUNT) why = torch_check(state, c);
  if (why == REASON_COUNT && c->out) why = torch_claim_out(state, c->out, p);
  if (why == REASON_AUTOGRAD && !PyErr_Occurred() &&
      (!override_serves(state) || problem_is_invariant(p)))
    result = torch_record(state, c, p);
  else if (why == REASON_COUNT)
    result = run(state, c, p, found, &why);
  lookup_release(found);
  return result || PyErr_Occurred() ? result : torch_fall_back(state, c, why, p);
}

// A problem without a kernel: torch's product itself where torch would do nothing else, or the call
// as it is.
static PyObject *serve_by_torch(launcher_state *state, const call *c, problem *p, reason why) {
  if (torch_count(state, why, p)) return NULL;
  // torch.mm finds out as little as this, and in inference mode takes 0.3 us less.
  if (torch_takes_mm(c, p)) {
    const int before = override_pass(1);  // a call is decided, and counted, once
    PyObject *result = torch_call(state, c, p);
    override_pass(before);
    return result;
  }
  // out is not touched
  if (!torch_has_product(state) || p->shape.batches) return torch_call(state, c, p);
  reason odd = c->out ? problem_out(state, c->out, 16, p) : REASON_COUNT;
  if (odd == REASON_COUNT && c->bias) odd = problem_bias(state, c->bias, p);
  if (odd == REASON_COUNT) odd = torch_check(state, c);
  if (odd == REASON_COUNT && c->out) odd = torch_claim_out(state, c->out, p);
  if (PyErr_Occurred()) return NULL;
  PyObject *result = odd == REASON_COUNT ? torch_product(state, c, p) : NULL;
  return result || PyErr_Occurred() ? result : torch_call(state, c, p);
}

static PyObject *multiply(launcher_state *state, const call *c, problem *p) {
  answer *found = lookup(state, p);
  if (!found) return NULL;
  if (found->fallback != REASON_COUNT) return serve_by_torch(state, c, p, found->fallback);
  return serve(state, c, p, found);
}

// In the batch-invariant mode: a kernel's product, and torch's own sum of it and the bias, whatever
// kernels with a bias there are. Which exist depends on M, and they round once.
static PyObject *multiply_and_add(launcher_state *state, call c, problem *p) {
  problem with_bias = *p;
  const reason why = problem_finish_with(state, c.bias, FINISH_BIAS, &with_bias);
  if (why != REASON_COUNT) return torch_fall_back(state, &c, why, p);
  PyObject *const bias = c.bias;
  c.bias = NULL;
  PyObject *product = multiply(state, &c, p);
  PyObject *result = NULL;
  if (product) result = (c.out ? PyNumber_InPlaceAdd : PyNumber_Add)(product, bias);
  Py_XDECREF(product);
  return result;
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
  if (state->off) {
    const int before = override_pass(1);
    PyObject *result = torch_unasked(state, &c);
    override_pass(before);
    return result;
  }
  if (!call_parse(state, &c))  // torch knows more names of arguments
    return state->invariant ? torch_fall_back(state, &c, REASON_MISMATCH, NULL)
                            : torch_call(state, &c, NULL);
  if (!state->exchange) return torch_fall_back(state, &c, REASON_NO_EXCHANGE, NULL);
  if (torch_trains(state, &c)) return torch_fall_back(state, &c, REASON_AUTOGRAD, NULL);
  reason why = problem_describe(state, c.a, c.b, c.linear, &p);
  if (why == REASON_COUNT && c.sum && p.a.leading_count != 1) why = REASON_SHAPE;
  if (why != REASON_COUNT) return torch_fall_back(state, &c, why, NULL);
  if (c.bias && problem_is_invariant(&p)) return multiply_and_add(state, c, &p);
  if (c.bias) why = problem_finish_with(state, c.bias, FINISH_BIAS, &p);
  if (why != REASON_COUNT) return serve_by_torch(state, &c, &p, why);
  return multiply(state, &c, &p);
}

PyObject *matmul_py(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names) {
  return product(state_of(module), (call){.args = args, .count = count, .names = names});
}

PyObject *linear_py(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names) {
  return product(state_of(module),
                 (call){.linear = 1, .args = args, .count = count, .names = names});
}

PyObject *addmm_py(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names) {
  return product(state_of(module), (call){.sum = 1, .args = args, .count = count, .names = names});
}

// A kernel's result, or NULL where none serves this call: nothing is counted then, for the product
// is asked for again, without the rest.
static PyObject *serve_whole(launcher_state *state, call c, finish how) {
  problem p;
  reason why = REASON_COUNT;
  if (state->off || !state->exchange || torch_trains(state, &c) ||
      problem_describe(state, c.a, c.b, 1, &p) != REASON_COUNT || problem_is_invariant(&p) ||
      problem_finish_with(state, c.bias, how, &p) != REASON_COUNT)
    return NULL;
  answer *found = lookup(state, &p);
  if (!found || found->fallback != REASON_COUNT) return NULL;
  found->users++;  // as `serve` holds it
  PyObject *result = NULL;
  if (torch_check(state, &c) == REASON_COUNT && !PyErr_Occurred())
    result = run(state, &c, &p, found, &why);
  lookup_release(found);
  return result;
}

PyObject *fused_linear_py(PyObject *module, PyObject *const *args, Py_ssize_t count) {
  launcher_state *state = state_of(module);
  if (count != 4)
    return PyErr_Format(PyExc_TypeError, "fused_linear(input, weight, addend, epilogue)");
  const int how = finish_named(args[3]);
  if (how < 0 || (!state->started && start(state))) return NULL;
  PyObject *result = serve_whole(
      state,
      (call){.linear = 1, .a = args[0], .b = args[1], .bias = args[2] == Py_None ? NULL : args[2]},
      (finish)how);
  if (result || PyErr_Occurred()) return result;
  Py_RETURN_NONE;
}
