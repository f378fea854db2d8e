#include "torch/arguments.h"

// Keyword names of a call site are interned, so the pointer nearly always decides.
static int is_named(PyObject *name, PyObject *interned, const char *text) {
  return name == interned || PyUnicode_CompareWithASCIIString(name, text) == 0;
}

int call_parse(const launcher_state *state, call *c) {
  PyObject *const *values = c->args + c->count;
  const Py_ssize_t named = c->names ? PyTuple_Size(c->names) : 0;
  PyObject **const order[] = {c->sum ? &c->bias : &c->a, c->sum ? &c->a : &c->b,
                              c->sum ? &c->b : &c->bias};
  if (c->count > 2 + c->linear + c->sum) return 0;
  for (Py_ssize_t i = 0; i < c->count; i++)
    *order[i] = c->args[i];
  for (Py_ssize_t i = 0; i < named; i++) {
    PyObject *name = PyTuple_GetItem(c->names, i), **slot;
    if (!c->linear && is_named(name, state->name_out, "out"))
      slot = &c->out;
    else if (c->sum)
      return 0;
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
  return c->a && c->b && (c->bias || !c->sum);
}
