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

// The function that the caller could have called instead, with exactly the caller's arguments.
PyObject *torch_call(const launcher_state *state, const call *c);

// Hands the call to torch, once, and counts why; the result or the exception is torch's. `p` is
// NULL when the operands never made a problem.
PyObject *torch_fall_back(launcher_state *state, const call *c, reason why, const problem *p);

// The output of a call without out, also in p->c: an ordinary tensor of torch's allocator.
// `flat_args` are those of torch.empty for a plain 2-D call.
PyObject *torch_allocate(const launcher_state *state, const call *c, problem *p,
                         PyObject *flat_args, int is_current);

#endif
