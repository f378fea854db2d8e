#include "trees.h"

#include <math.h>

enum { LANES = 8, LINE = 64 };

// A node sends what is at most its number to the node `child` nodes on, the rest to the one behind
// that. A leaf, which has its value in place of a key, looks at what is below every key, and sends
// it to itself: a walk takes as many steps as its tree is deep, and no branch that the processor
// could not foretell. Numbers are compared as integers, in their order (key_of).
struct node {
  uint32_t key;
  uint16_t value, child;  // value: where the feature begins among the values of LANES walks
};

void model_free(model *m) {
  PyMem_Free(m->trees);
  PyMem_Free(m->nodes);
  Py_XDECREF(m->from);
  *m = (model){0};
}

// The number of a leaf.
static inline double number_of(const node *leaf) {
  float single;
  memcpy(&single, &leaf->key, sizeof single);
  return (double)single;
}

// The first node on the way from `at` on that sends rows within the spans both ways.
static Py_ssize_t follow(const model *m, const span *spans, Py_ssize_t at) {
  while (spans && m->feature[at] >= 0) {
    const uint32_t key = key_of((double)(float)m->number[at]);
    const span *seen = &spans[m->feature[at]];
    if (seen->least <= key && seen->most > key) break;
    at = seen->most <= key ? at + 1 : m->right[at];
  }
  return at;
}

// Makes a tree for walks. `from` is room for where a node was. Returns whether each but the root is
// the child of one before it, so that every walk stays inside and ends; with spans that is known.
static int make_tree(model *m, Py_ssize_t which, int features, const span *spans, uint16_t *from) {
  tree *t = &m->trees[which];
  const Py_ssize_t root = m->roots[which];
  const Py_ssize_t end = which + 1 < m->tree_count ? m->roots[which + 1] : m->count;
  if (root < 0 || root >= end || end > m->count || (!which && root)) return 0;
  const Py_ssize_t most = t->root + end - root;
  Py_ssize_t placed = t->root + 1, level_end = placed;
  from[t->root] = (uint16_t)follow(m, spans, root);
  t->depth = 0;
  for (Py_ssize_t i = t->root; i < placed; i++) {
    const Py_ssize_t was = from[i];
    const int32_t feature = m->feature[was], right = m->right[was];
    node *each = &m->nodes[i];
    if (i == level_end) t->depth++, level_end = placed;
    const float number = (float)m->number[was];
    each->value = BELOW_ALL * LANES, each->child = 0;
    memcpy(&each->key, &number, sizeof number);
    if (feature == -1) continue;
    if (feature < 0 || feature >= features || right <= was + 1 || right >= end || placed + 2 > most)
      return 0;
    each->key = key_of((double)number);
    each->value = (uint16_t)(feature * LANES), each->child = (uint16_t)(placed - i);
    from[placed++] = (uint16_t)follow(m, spans, was + 1);
    from[placed++] = (uint16_t)follow(m, spans, right);
  }
  t[1].root = (int32_t)placed;
  return spans || placed == most;
}

// 1, 0 where a tree does not end, -1 where there is no memory.
static int make_trees(model *m, int features, const span *spans) {
  m->trees = PyMem_Calloc((size_t)m->tree_count + 1, sizeof *m->trees);
  m->nodes = PyMem_Malloc(((size_t)m->count + 1) * sizeof *m->nodes);
  uint16_t *places = PyMem_Malloc(((size_t)m->count + 1) * sizeof *places);
  int fine = m->trees && m->nodes && places ? 1 : -1;
  for (Py_ssize_t i = 0; i < m->tree_count && fine > 0; i++)
    fine = make_tree(m, i, features, spans, places);
  PyMem_Free(places);
  return fine;
}

// The bytes of arrays of Python's lie as arrays of C's do.
int model_read(model *m, PyObject *from, int features) {
  const char *roots, *feature, *number, *right;
  Py_ssize_t sizes[4];
  if (!PyArg_ParseTuple(from, "dy#y#y#y#", &m->base, &roots, &sizes[0], &feature, &sizes[1],
                        &number, &sizes[2], &right, &sizes[3]))
    return -1;
  m->tree_count = sizes[0] / (Py_ssize_t)sizeof(int32_t);
  m->count = sizes[2] / (Py_ssize_t)sizeof(double);
  m->from = Py_NewRef(from), m->number = (const void *)number;
  m->roots = (const void *)roots, m->feature = (const void *)feature,
  m->right = (const void *)right;
  const int fits = m->count <= UINT16_MAX && sizes[1] == sizes[3] &&
                   sizes[1] == m->count * (Py_ssize_t)sizeof(int32_t);
  const int fine = fits ? make_trees(m, features, NULL) : 0;
  if (fine < 0)
    PyErr_NoMemory();
  else if (!fine)
    PyErr_SetString(PyExc_ValueError, "a tree of a predictor does not end");
  return fine > 0 ? 0 : -1;
}

int model_narrow(const model *m, const span spans[FEATURE_COUNT], model *result) {
  *result = *m;
  Py_XINCREF(result->from);
  if (make_trees(result, FEATURE_COUNT, spans) < 0) return model_free(result), -1;
  const size_t left = (size_t)result->trees[m->tree_count].root + 1;
  node *nodes = PyMem_Realloc(result->nodes, left * sizeof *nodes);
  if (nodes) result->nodes = nodes;
  return 0;
}

double model_spread(const model *m, Py_ssize_t first) {
  double sum = 0.0;
  for (Py_ssize_t t = first; t < m->tree_count; t++) {
    double sizes = 0.0;
    int leaves = 0;
    for (Py_ssize_t i = m->trees[t].root; i < m->trees[t + 1].root; i++)
      if (!m->nodes[i].child) sizes += fabs(number_of(&m->nodes[i])), leaves++;
    sum += sizes / leaves;
  }
  return sum / 3.0;
}

// Takes walks to their leaves, LANES at once: a step waits for the one before, not for its
// neighbours.
static inline void walk(const node **at, const uint32_t *values, int32_t steps) {
  for (; steps > 0; steps--) {
#pragma GCC unroll 8
    for (int i = 0; i < LANES; i++)
      at[i] += (uint64_t)at[i]->child + (at[i]->key < values[at[i]->value + i]);
  }
}

// Has the nodes of these trees brought to the cache while others are walked.
static inline void fetch_trees(const model *m, Py_ssize_t first, Py_ssize_t end) {
  if (end > m->tree_count) end = m->tree_count;
  if (first >= end) return;
  const char *at = (const char *)&m->nodes[m->trees[first].root];
  for (; at < (const char *)&m->nodes[m->trees[end].root]; at += LINE)
    __builtin_prefetch(at);
}

// Adds `trees` trees from `first` on to the sums of 2^log rows, each walked through them.
static inline void add_together(const model *m, Py_ssize_t first, int trees, int log,
                                const uint32_t *values, double *const *sums) {
  const node *at[LANES];
  int32_t depth = 0;
  for (int i = 0; i < LANES; i++) {
    const tree *t = &m->trees[first + (i >> log < trees ? i >> log : 0)];
    if (t->depth > depth) depth = t->depth;
    at[i] = &m->nodes[t->root];
  }
  walk(at, values, depth);
  for (int i = 0; i < trees << log; i++)
    *sums[i] += number_of(at[i]);
}

// Of few rows several trees are walked at once.
void model_add(const model *m, Py_ssize_t first, Py_ssize_t end, const int *rows, int count,
               const uint32_t (*seen)[VALUES], double *sums) {
  int log = 0;
  while (1 << log < count && 1 << log < LANES)
    log++;
  const int width = 1 << log, together = LANES >> log;
  for (int from = 0; from < count; from += width) {
    uint32_t values[VALUES][LANES];
    double idle = 0.0, *to[LANES];
    for (int i = 0; i < LANES; i++) {
      const int at = from + (i & (width - 1));
      const uint32_t *row = seen[rows[at < count ? at : from]];
      for (int j = 0; j < VALUES; j++)
        values[j][i] = row[j];
      to[i] = at < count ? &sums[rows[at]] : &idle;
    }
    for (Py_ssize_t t = first; t < end; t += together) {
      const Py_ssize_t next = t + together;
      if (!from) fetch_trees(m, next, next + together);
      add_together(m, t, (int)(next < end ? together : end - t), log, values[0], to);
    }
  }
}

double model_value(const model *m, const uint32_t *seen) {
  const int row = 0;
  double sum = m->base;
  model_add(m, 0, m->tree_count, &row, 1, (const uint32_t (*)[VALUES])seen, &sum);
  return sum;
}
