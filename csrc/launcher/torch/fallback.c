#include "torch/fallback.h"

// The function with exactly the caller's arguments.
static PyObject *call_again(const launcher_state *state, const call *c) {
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
  const torch_api *torch = &state->torch;
  result = PyObject_Call(c->linear ? torch->linear
                         : c->sum  ? torch->addmm
                                   : torch->matmul,
                         args, kwargs);
done:
  Py_DECREF(args);
  Py_XDECREF(kwargs);
  return result;
}

PyObject *torch_call(const launcher_state *state, const call *c, const problem *p) {
  // Two matrices that fit, without what torch.matmul does to find out (0.1 us). An output may be
  // one that torch refuses, in words that name the function, and any mode may see which it is.
  if (p && torch_takes_mm(c, p) && modes_at_rest(&state->modes))
    return PyObject_CallFunctionObjArgs(state->torch.mm, c->a, c->b, NULL);
  return call_again(state, c);
}

int torch_count(launcher_state *state, reason why, const problem *p) {
  if (!count_fallback(state, why) && state->note) {
    PyObject *noted = PyObject_CallFunction(state->note, "s", REASON_NAMES[why]);
    Py_XDECREF(noted);
    if (!noted) return -1;
  }
  // A mismatch is the caller's mistake: torch says so better than STRICT could. Where it is none,
  // as with an output that torch makes larger, the product would be torch's.
  const int invariant = state->invariant || (p && problem_is_invariant(p));
  if (!invariant && (!state->strict || why == REASON_MISMATCH)) return 0;
  PyObject *described = p ? problem_tuple(p) : Py_NewRef(Py_None);
  if (!described) return -1;
  PyObject *none = PyObject_CallFunction(state->torch.refuse, "sOi", REASON_NAMES[why], described,
                                         p ? p->a.device : 0);
  Py_DECREF(described);
  Py_XDECREF(none);
  return none ? 0 : -1;
}

PyObject *torch_fall_back(launcher_state *state, const call *c, reason why, const problem *p) {
  return torch_count(state, why, p) ? NULL : torch_call(state, c, p);
}

PyObject *torch_unasked(launcher_state *state, const call *c) {
  if (state->invariant) return torch_fall_back(state, c, REASON_OFF, NULL);
  count_fallback(state, REASON_OFF);
  return torch_call(state, c, NULL);
}
