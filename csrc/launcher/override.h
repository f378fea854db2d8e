// The products of a program that is not edited: torch's own operators mm and bmm, with out too, and
// sums with a product (sums.h), on our device. From `override` on torch's dispatcher has our
// functions there, below autograd, autocast and functorch, so that whoever asks torch for a product
// reaches them: a layer, a gradient, compiled code. A call with a kernel is run by it, any other by
// the function that torch had there.
//
// Our functions stay once they are there. torch takes its dispatch tables apart under threads that
// read them, so that a function is only ever put there, and a switch says whether kernels run.
#ifndef HGP_OVERRIDE_H
#define HGP_OVERRIDE_H

#include "state.h"

// override(find): puts our functions where `find(operator, dispatch key)` says the key's number,
// and not 0, that nobody else's may be replaced. Once per process: None from the second time on.
// False where sums stay torch's, for this torch does not offer what they take; RuntimeError where
// it does not for products.
PyObject *override_py(PyObject *module, PyObject *find);

// serve_program(on): whether kernels of this module object run torch's operators.
PyObject *override_serve(PyObject *module, PyObject *on);

// Whether they do: what torch records gets kernels then.
int override_serves(const launcher_state *state);

// Whether torch's operators are left alone in this thread, where they have been decided on: torch
// runs a call of matmul. Returns what was before.
int override_pass(int yes);

#endif
