// A call that torch runs: the function that the caller could have called, and why it was.
#ifndef HGP_FALLBACK_H
#define HGP_FALLBACK_H

#include "lookup.h"
#include "torch/arguments.h"

// Whether `p` is of two matrices and the call has no output: torch.mm's call.
static inline int torch_takes_mm(const call *c, const problem *p) {
  return p->a.leading_count == 1 && !c->out && !c->linear && !c->sum;
}

// The function that the caller could have called instead, with exactly the caller's arguments; of a
// problem `p`, if it is not NULL, one that comes to the same.
PyObject *torch_call(const launcher_state *state, const call *c, const problem *p);

// Counts a call that torch runs, and why. -1 with an exception set under STRICT.
int torch_count(launcher_state *state, reason why, const problem *p);

// Hands the call to torch, once, and counts why; the result or the exception is torch's. `p` is
// NULL when the operands never made a problem.
PyObject *torch_fall_back(launcher_state *state, const call *c, reason why, const problem *p);

// The same where kernels are switched off, under STRICT as well.
PyObject *torch_unasked(launcher_state *state, const call *c);

#endif
