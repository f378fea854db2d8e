// From two or three Python objects to a problem: views, checks and the table key. Says which reason
// sends a call to torch; computes nothing that Python decides.
#ifndef HGP_PROBLEM_H
#define HGP_PROBLEM_H

#include "state.h"
#include "torch/tensor.h"

typedef struct {
  problem_key key;
  geometry shape;
  matrix a, b, c;     // c: only with out
  void *bias;         // that the kernel adds to each row, or NULL
  int transposed[2];  // how A and B are stored
  int align;          // bytes: 16, 8, 4 or 2
  int packed;
} problem;

// Whether it is a torch.Tensor or a Parameter, and of no class of its own: subclasses and
// FakeTensor have their own idea of matmul.
int is_tensor(const launcher_state *state, PyObject *object);

// Fills `result` and returns REASON_COUNT when a and b make a problem that the table can answer; a
// reason otherwise. Of a `linear` call b is the transpose of what is multiplied. Runs no Python. C
// is taken to be packed and aligned as its rows allow: a fallback then needs no look at out.
reason problem_describe(const launcher_state *state, PyObject *a, PyObject *b, int linear,
                        problem *result);

// Checks that `out` is what a kernel of `p` can write to and fills p->c. REASON_COUNT when it is.
reason problem_out(const launcher_state *state, PyObject *out, problem *p);

// The parts of these two, of C++ tensors: a view of one, a problem of a and b that are viewed, and
// whether C, viewed, can be written to. None needs the GIL.
reason problem_view(const launcher_state *state, void *tensor, matrix *result);
reason problem_of_views(int linear, problem *p);
reason problem_of_output(const problem *p);

// Whether torch adds `bias` to the product inside it: a vector of N, as torch.addmm takes it.
reason problem_bias(const launcher_state *state, PyObject *bias, const problem *p);

// Makes of `p` the problem of the product and this bias, if a kernel may add it: a packed vector of
// N at an aligned address. REASON_COUNT when it is.
reason problem_add_bias(const launcher_state *state, PyObject *bias, problem *p);

// Whether the call began in the batch-invariant mode, in which torch runs none: it ends so, too.
static inline int problem_is_invariant(const problem *p) {
  return (p->key.tag & INVARIANT_KEY) != 0;
}

// "nn", "nt", "tn" or "tt".
const char *problem_layout(const problem *p);

#endif
