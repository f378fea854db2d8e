// The arguments of a call, told apart as torch tells them.
#ifndef HGP_ARGUMENTS_H
#define HGP_ARGUMENTS_H

#include "state.h"

// One call as Python made it, and its operands once they are known.
typedef struct {
  int linear;  // torch.nn.functional.linear, and b its weight
  int sum;     // torch.addmm, and bias its first operand; else torch.matmul
  PyObject *const *args;
  Py_ssize_t count;
  PyObject *names;
  PyObject *a, *b, *out, *bias;  // out, bias: NULL for None
} call;

// Finds a, b, out and bias; 0 when the arguments are not those of the function, as torch then says
// itself.
int call_parse(const launcher_state *state, call *c);

#endif
