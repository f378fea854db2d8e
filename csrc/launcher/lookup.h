// Problem -> what to do about it: from the table, or on a miss from Python, once.
#ifndef HGP_LOOKUP_H
#define HGP_LOOKUP_H

#include "problem.h"

// What the table holds. `fallback` is REASON_COUNT where there are plans to launch: the problem's
// own, an ordinary launch, and perhaps another for launches that may be dependent ones.
typedef struct {
  reason fallback;
  int users;      // of one with plans: each table that has it, and calls that hold it
  int predicted;  // chosen by a model of times, and not measured
  plan own;
  plan dependent;  // its `pdl` is 0 where there is none
} answer;

// The answer to `p`; NULL with a Python exception set when resolving failed. Valid until the next
// call into Python, which may change the table, or for as long as it has one user more.
answer *lookup(launcher_state *state, const problem *p);

// Takes one of its users from an answer.
void lookup_release(answer *entry);

// The most bytes that a kernel of an answer that is no fallback needs of C's address and rows.
static inline int lookup_bytes_of_c(const answer *entry) {
  return entry->own.bytes_of_c > entry->dependent.bytes_of_c ? entry->own.bytes_of_c
                                                             : entry->dependent.bytes_of_c;
}

// Turns the answer to `key` into a fallback for good: its launch failed.
void lookup_give_up(launcher_state *state, const problem_key *key, reason why);

// Forgets every answer.
void lookup_reset(launcher_state *state);

// (m, n, k, layout, dtype, alignments, packed, epilogue, batches) for Python, or NULL with an
// exception set.
PyObject *problem_tuple(const problem *p);

#endif
