// torch's own product of two matrices, below its dispatcher: what torch.matmul and linear come to
// once they have found out that nothing is to be done but to multiply. A call that no kernel serves
// knows that already, and takes two thirds of torch's time for it.
//
// The functions are of torch's C shim, which keeps its ABI; a torch without them is called as
// usual.
#ifndef HGP_PRODUCT_H
#define HGP_PRODUCT_H

#include "torch/fallback.h"

// Finds torch's functions for tensors of CUDA or the CPU; leaves them NULL where there are none.
void products_bind(torch_products *products, int on_cuda);

// Whether it has them.
int torch_has_product(const launcher_state *state);

// a @ b, plus the bias if any, of a problem for which torch would do nothing else: the caller has
// asked, of torch_has_product too. `out` has been claimed. NULL without an exception where torch
// could not: the call as it is says why.
PyObject *torch_product(launcher_state *state, const call *c, problem *p);

#endif
