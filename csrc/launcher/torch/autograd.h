// What torch would do with a call besides multiplying: modes, gradients, the version of an output.
#ifndef HGP_AUTOGRAD_H
#define HGP_AUTOGRAD_H

#include "problem.h"
#include "torch/arguments.h"

// Whether torch's own matmul would do more than multiply. REASON_COUNT when not; an exception is
// left set when asking failed.
reason torch_check(const launcher_state *state, const call *c);

// A call whose weight wants a gradient and whose product is small is torch's whatever its problem:
// asked first of all, where that is cheap, such training pays for nothing else. STRICT says what is
// wrong with the problem.
int torch_trains(const launcher_state *state, const call *c);

// The product of a problem with a kernel, and its gradients recorded as products of ours: Python's
// (hgemm_packs/autograd.py). NULL without an exception where torch is to record it instead.
PyObject *torch_record(const launcher_state *state, const call *c, const problem *p);

// Whether torch lets out be written; if so, its version is a new one. Outside inference mode an
// inference tensor is torch's to refuse, in its own words. An exception is left set when the
// version could not be changed.
reason torch_claim_out(const launcher_state *state, PyObject *out, problem *p);

#endif
