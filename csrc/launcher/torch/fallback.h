// What of a call torch does: all of it, where no kernel runs, and the output's memory.
#ifndef HGP_TORCH_CALL_H
#define HGP_TORCH_CALL_H

#include "lookup.h"

// One call as Python made it, and its operands once they are known.
typedef struct {
  int linear;  // torch.nn.functional.linear, and b its weight; else torch.matmul
  PyObject *const *args;
  Py_ssize_t count;
  PyObject *names;
  PyObject *a, *b, *out, *bias;  // out, bias: NULL for None
} call;

// The function that the caller could have called instead, with exactly the caller's arguments; of a
// problem `p`, if it is not NULL, one that comes to the same.
PyObject *torch_call(const launcher_state *state, const call *c, const problem *p);

// Counts a call that torch runs, and why. -1 with an exception set under STRICT.
int torch_count(launcher_state *state, reason why, const problem *p);

// Hands the call to torch, once, and counts why; the result or the exception is torch's. `p` is
// NULL when the operands never made a problem.
PyObject *torch_fall_back(launcher_state *state, const call *c, reason why, const problem *p);

#endif
