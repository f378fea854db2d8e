// Sums of regression trees over what feature_values.h computes, walked many at a time.
#ifndef HGP_TREES_H
#define HGP_TREES_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <string.h>

#include "feature_values.h"

// What walks look at, of a row: the keys of its features, and one below all.
enum { BELOW_ALL = FEATURE_COUNT, VALUES };

typedef struct node node;

// Level by level, from its root.
typedef struct {
  int32_t root, depth;
} tree;

// Trees for walks, made of those that a pack has. `from` is these, which the rest points into.
typedef struct {
  double base;
  tree *trees;  // one more, for where the last one ends
  node *nodes;
  Py_ssize_t tree_count, count;
  PyObject *from;
  const int32_t *roots, *feature, *right;
  const double *number;
} model;

// Keys that a feature has: none is below the least or above the most.
typedef struct {
  uint32_t least, most;
} span;

// A number, rounded up to a float, as an integer in the same order. What is at most a float is it
// rounded up, too.
static inline uint32_t key_of(double number) {
  const float single = (float)number + 0.0F;  // of both zeros one
  uint32_t bits;
  memcpy(&bits, &single, sizeof bits);
  bits ^= (0U - (bits >> 31)) | 1U << 31;
  return bits + ((double)single < number);
}

// Reads (base, roots, features, numbers, rights), of which trees may look at the first `features`
// features; 0, or -1 with an exception set. What was read is freed by `model_free` either way.
int model_read(model *m, PyObject *from, int features);
void model_free(model *m);

// Makes a model without the nodes that no row within these spans comes to; of such a row it has the
// same sums. 0, or -1 where there is no memory. It is freed like the other.
int model_narrow(const model *m, const span spans[FEATURE_COUNT], model *result);

// How far the trees from `first` on move a sum, less what they take from each other: a third of
// their leaves' mean sizes. Of 2,000 problems none was moved by more than two thirds of that.
double model_spread(const model *m, Py_ssize_t first);

// Adds the trees from `first` to `end` to the sums of these rows.
void model_add(const model *m, Py_ssize_t first, Py_ssize_t end, const int *rows, int count,
               const uint32_t (*seen)[VALUES], double *sums);

// The whole sum of one row.
double model_value(const model *m, const uint32_t *seen);

#endif
