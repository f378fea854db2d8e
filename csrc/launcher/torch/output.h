// The output of a call without out: an ordinary tensor of torch's allocator.
#ifndef HGP_OUTPUT_H
#define HGP_OUTPUT_H

#include "problem.h"
#include "torch/arguments.h"

// Makes it, and views it in p->c. NULL with an exception set.
PyObject *output_allocate(launcher_state *state, const call *c, problem *p);

#endif
