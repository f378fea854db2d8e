// The output of a call: its out, or an ordinary tensor of torch's allocator.
#ifndef HGP_OUTPUT_H
#define HGP_OUTPUT_H

#include "problem.h"
#include "torch/arguments.h"

// A new reference to it; one that is made is viewed in p->c. NULL with an exception set.
PyObject *output_of(launcher_state *state, const call *c, problem *p);

#endif
