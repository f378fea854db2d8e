// The output of a call without out: an ordinary tensor of torch's allocator.
#ifndef HGP_OUTPUT_H
#define HGP_OUTPUT_H

#include "torch_call.h"

// Makes it, and views it in p->c. `is_current`: torch's current device is likely the operands'; the
// tensor is right in any case. NULL with an exception set.
PyObject *output_allocate(launcher_state *state, const call *c, problem *p, int is_current);

#endif
