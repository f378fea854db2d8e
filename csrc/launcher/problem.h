// From two or three Python objects to a problem: views, checks and the table key. Says which reason
// sends a call to torch; computes nothing that Python decides.
#ifndef HGP_PROBLEM_H
#define HGP_PROBLEM_H

#include "state.h"
#include "tensor.h"

typedef struct {
  problem_key key;
  geometry shape;
  matrix a, b, c;     // c: only with out
  int transposed[2];  // how A and B are stored
  int align;          // bytes: 16, 8, 4 or 2
  int packed;
} problem;

// Fills `result` and returns REASON_COUNT when a, b and out (or NULL) make a problem that the table
// can answer; a reason otherwise. No Python exception is left set.
reason problem_describe(const launcher_state *state, PyObject *a, PyObject *b, PyObject *out,
                        problem *result);

// "nn", "nt", "tn" or "tt".
const char *problem_layout(const problem *p);

#endif
