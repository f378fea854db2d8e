// One call of an operator of torch's under `enable`: our half of it, below torch's dispatcher. Who
// calls it has the tensors from torch, and lets torch run what is not served (override.c, sums.c).
#ifndef HGP_OPERATOR_H
#define HGP_OPERATOR_H

#include "problem.h"

// C++ tensors of a call.
typedef struct {
  void *a, *b, *out;  // out: NULL, or what is written
  int batched;
  int owned;      // by the call, which lets go of them where it ends
  void *addend;   // of a sum; NULL in a product
  int ignored;    // whether the addend is times 0, and so not read
  int scaled;     // whether the addend or the product is times anything else than that or 1
  finish biased;  // what a sum with a vector is, perhaps an activation of it
} operands;

// Functions of torch's C shim, but for the last two, of which a torch that lacks them has no such
// flag.
typedef struct {
  int32_t (*make)(void **tensor);
  int32_t (*drop)(void *tensor);
  int32_t (*allocate)(int64_t dims, const int64_t *sizes, const int64_t *strides, int32_t type,
                      int32_t device_type, int32_t device, void **result);
  void (*fail)(const char *function, const char *file, uint32_t line, const char *message);
  const void *(*context)(void);
  bool (*sums_in_half)(const void *context);
} operator_shim;

extern operator_shim shim;

// Whose kernels run torch's operators, in this thread, and on these two C++ tensors: NULL where
// torch does.
launcher_state *operator_program(void *a, void *b);

// A kernel's result, a tensor of its own or `out`, or NULL where torch is to run the call, which is
// then counted, with the reason.
void *operator_serve(launcher_state *state, const operands *x);

// Moves a tensor that `operator_serve` has made to where C++ keeps one, and destroys what C++
// keeps.
void operator_move(void *made, void *place);
void operator_drop(void *place);

#endif
