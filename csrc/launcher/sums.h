// torch's operators of a sum with a product under `enable`: addmm, baddbmm and _addmm_activation,
// with out too. Kernels run those that are a product with a bias, with a matrix added, or where
// what is added is times 0 a product alone; alpha is 1 in all of these. torch runs any other, to
// the bit.
#ifndef HGP_SUMS_H
#define HGP_SUMS_H

#include <stdint.h>

enum { SUMS = 6 };

// Their names in torch.
extern const char *const SUM_NAMES[SUMS];

// Finds torch's functions, in `device` those of our devices; 0 where this torch or this machine
// offers no way to put ours in their place.
int sums_bind(void *device, int on_cuda);

// Puts ours at one of the operators, for a dispatch key; `library` is of torch's C shim. -1 where
// torch does not take it.
int sums_put(void *library, int which, uint16_t key);

#endif
