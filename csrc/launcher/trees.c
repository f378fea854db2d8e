#include "trees.h"

#include <math.h>
#include <string.h>

#include "feature_values.h"

// A node sends what is at most `number` to the node behind it, the rest `right` nodes on. A leaf,
// which has its value there, looks at what is above every number, and sends it to itself: a walk
// takes as many steps as its tree is deep, and no branch that the processor could not foretell.
typedef struct {
  float number;
  uint16_t feature, right;
} node;

enum { ABOVE_ALL = FEATURE_COUNT, VALUES, LANES = 8 };

typedef struct {
  int32_t root, depth;
} tree;

typedef struct {
  double base;
  tree *trees;
  node *nodes;
  Py_ssize_t tree_count, count;
} model;

typedef struct {
  seen_device device;
  candidate *candidates;
  Py_ssize_t count;
  model ours, torch, doubt;
} predictor;

// Candidates that one problem may have; the reader of packs allows no more.
enum { MOST_ADMITTED = 64 };
// Behind the first so many trees, how many candidates the rest is walked for.
static const struct {
  Py_ssize_t trees;
  int left;
} ROUNDS[] = {{24, 10}, {64, 5}};
enum { ROUND_COUNT = sizeof ROUNDS / sizeof *ROUNDS };

static const char NAME[] = "hgemm_packs._C.predictor";

static void model_free(model *m) {
  PyMem_Free(m->trees);
  PyMem_Free(m->nodes);
}

static void predictor_free(predictor *p) {
  model_free(&p->ours);
  model_free(&p->torch);
  model_free(&p->doubt);
  PyMem_Free(p->candidates);
  PyMem_Free(p);
}

static void capsule_free(PyObject *capsule) {
  predictor_free(PyCapsule_GetPointer(capsule, NAME));
}

// Reads nodes of a tree, and how deep it is. Returns whether every walk stays inside and ends:
// children stand behind their parents.
static int tree_read(model *m, tree *t, Py_ssize_t end, int features, const int32_t *feature,
                     const double *number, const int32_t *right, uint16_t *depth) {
  t->depth = 0;
  for (Py_ssize_t i = t->root; i < end; i++) {
    node *each = &m->nodes[i];
    each->number = (float)number[i];
    each->feature = ABOVE_ALL, each->right = 0;
    if (feature[i] == -1) continue;
    if (feature[i] < 0 || feature[i] >= features || right[i] <= i + 1 || right[i] >= end ||
        right[i] - i > UINT16_MAX)
      return 0;
    each->feature = (uint16_t)feature[i], each->right = (uint16_t)(right[i] - i);
    const uint16_t below = (uint16_t)(depth[i] + 1);
    if (depth[i + 1] < below) depth[i + 1] = below;
    if (depth[right[i]] < below) depth[right[i]] = below;
    if (t->depth < below) t->depth = below;
  }
  return 1;
}

static int trees_read(model *m, int features, const int32_t *roots, const int32_t *feature,
                      const double *number, const int32_t *right, uint16_t *depth) {
  for (Py_ssize_t i = 0; i < m->tree_count; i++) {
    const Py_ssize_t end = i + 1 < m->tree_count ? roots[i + 1] : m->count;
    if (roots[i] < 0 || roots[i] >= end || end > m->count || (!i && roots[i])) return 0;
    m->trees[i].root = roots[i];
    if (!tree_read(m, &m->trees[i], end, features, feature, number, right, depth)) return 0;
  }
  return 1;
}

// The bytes of arrays of Python's lie as arrays of C's do.
static int model_read(model *m, PyObject *from, int features) {
  const char *roots, *feature, *number, *right;
  Py_ssize_t sizes[4];
  if (!PyArg_ParseTuple(from, "dy#y#y#y#", &m->base, &roots, &sizes[0], &feature, &sizes[1],
                        &number, &sizes[2], &right, &sizes[3]))
    return -1;
  m->tree_count = sizes[0] / (Py_ssize_t)sizeof(int32_t);
  m->count = sizes[2] / (Py_ssize_t)sizeof(double);
  const int fits = m->count <= UINT16_MAX && sizes[1] == sizes[3] &&
                   sizes[1] == m->count * (Py_ssize_t)sizeof(int32_t);
  m->trees = PyMem_Calloc((size_t)m->tree_count + 1, sizeof *m->trees);
  m->nodes = PyMem_Calloc((size_t)m->count + 1, sizeof *m->nodes);
  uint16_t *depth = PyMem_Calloc((size_t)m->count + 1, sizeof *depth);
  const int memory = m->trees && m->nodes && depth;
  const int fine = memory && fits &&
                   trees_read(m, features, (const void *)roots, (const void *)feature,
                              (const void *)number, (const void *)right, depth);
  PyMem_Free(depth);
  if (!memory)
    PyErr_NoMemory();
  else if (!fine)
    PyErr_SetString(PyExc_ValueError, "a tree of a predictor does not end");
  return fine ? 0 : -1;
}

static int candidates_read(predictor *p, const char *from, Py_ssize_t bytes) {
  const Py_ssize_t size = (Py_ssize_t)sizeof(candidate);
  p->count = bytes / size;
  p->candidates = PyMem_Calloc((size_t)p->count + 1, sizeof *p->candidates);
  if (!p->candidates) {
    PyErr_NoMemory();
    return -1;
  }
  memcpy(p->candidates, from, (size_t)(p->count * size));
  for (Py_ssize_t i = 0; i < p->count; i++) {
    const candidate *each = &p->candidates[i];
    const int32_t positive[] = {each->dims[0][2], each->dims[1][2], each->dims[2][2],
                                each->tile_m,     each->tile_n,     each->tile_k,
                                each->cluster_m,  each->cluster_n,  each->cluster_k,
                                each->slices,     each->threads};
    int fine = each->smem_bytes >= 0;
    for (size_t j = 0; j < sizeof positive / sizeof *positive; j++)
      fine = fine && positive[j] > 0;
    if (!fine) {
      PyErr_SetString(PyExc_ValueError, "a candidate of a predictor has no tile");
      return -1;
    }
  }
  return 0;
}

PyObject *predictor_py(PyObject *module, PyObject *args) {
  (void)module;
  PyObject *ours, *torch, *doubt;
  const char *candidates;
  Py_ssize_t bytes;
  seen_device device;
  if (!PyArg_ParseTuple(args, "idy#O!O!O!", &device.sm_count, &device.gbps, &candidates, &bytes,
                        &PyTuple_Type, &ours, &PyTuple_Type, &torch, &PyTuple_Type, &doubt))
    return NULL;
  predictor *p = PyMem_Calloc(1, sizeof *p);
  if (!p) return PyErr_NoMemory();
  p->device = device;
  const int failed = candidates_read(p, candidates, bytes) ||
                     model_read(&p->ours, ours, FEATURE_COUNT) ||
                     model_read(&p->torch, torch, FEATURES_OF_PROBLEM) ||
                     model_read(&p->doubt, doubt, FEATURE_COUNT);
  PyObject *capsule = failed ? NULL : PyCapsule_New(p, NAME, capsule_free);
  if (!capsule) predictor_free(p);
  return capsule;
}

// Takes walks to their leaves, LANES at once: a step waits for the one before, not for its
// neighbours.
static void walk(const node **at, const double *const *values, int32_t steps) {
  for (; steps > 0; steps--) {
#pragma GCC unroll 8
    for (int i = 0; i < LANES; i++) {
      const uint32_t right = at[i]->right;
      const uint32_t low = 0U - (values[i][at[i]->feature] <= (double)at[i]->number);
      at[i] += right ^ ((right ^ 1U) & low);
    }
  }
}

// Adds the trees from `first` to `end` to the sums of these rows, tree by tree: one tree at a time
// is in the cache.
static void add_trees(const model *m, Py_ssize_t first, Py_ssize_t end, const int *rows, int count,
                      double (*values)[VALUES], double *sums) {
  for (int from = 0; from < count; from += LANES) {
    const double *of[LANES];
    for (int i = 0; i < LANES; i++)
      of[i] = values[rows[from + i < count ? from + i : from]];
    for (Py_ssize_t t = first; t < end; t++) {
      const node *at[LANES];
      for (int i = 0; i < LANES; i++)
        at[i] = &m->nodes[m->trees[t].root];
      walk(at, of, m->trees[t].depth);
      for (int i = 0; i < LANES && from + i < count; i++)
        sums[rows[from + i]] += (double)at[i]->number;
    }
  }
}

// The value of a row: its walks through as many trees at once.
static double evaluate(const model *m, const double *values) {
  double sum = m->base;
  const double *of[LANES];
  for (int i = 0; i < LANES; i++)
    of[i] = values;
  for (Py_ssize_t from = 0; from < m->tree_count; from += LANES) {
    const node *at[LANES];
    int32_t depth = 0;
    for (int i = 0; i < LANES; i++) {
      const tree *t = &m->trees[from + i < m->tree_count ? from + i : from];
      at[i] = &m->nodes[t->root];
      if (t->depth > depth) depth = t->depth;
    }
    walk(at, of, depth);
    for (int i = 0; i < LANES && from + i < m->tree_count; i++)
      sum += (double)at[i]->number;
  }
  return sum;
}

// Sorts the `most` least sums of `count` rows to the front; of equal ones the first row is.
static void least_first(int *rows, int count, int most, const double *sums) {
  for (int to = 0; to < most; to++) {
    int least = to;
    for (int i = to + 1; i < count; i++) {
      const double a = sums[rows[i]], b = sums[rows[least]];
      if (a < b || (a == b && rows[i] < rows[least])) least = i;
    }
    const int moved = rows[to];
    rows[to] = rows[least], rows[least] = moved;
  }
}

// The row of the least sum, among those that the rounds leave. Its sum is whole.
static int choose(const model *m, int count, double (*values)[VALUES], double *sums) {
  int rows[MOST_ADMITTED];
  Py_ssize_t from = 0;
  for (int i = 0; i < count; i++)
    rows[i] = i, sums[i] = m->base;
  for (int round = 0; round <= ROUND_COUNT; round++) {
    const int last = round == ROUND_COUNT;
    Py_ssize_t to = last ? m->tree_count : ROUNDS[round].trees;
    if (to > m->tree_count) to = m->tree_count;
    const int left = last ? 1 : ROUNDS[round].left;
    add_trees(m, from, to, rows, count, values, sums);
    if (count > left || last) least_first(rows, count, left, sums);
    if (count > left) count = left;
    from = to;
  }
  return rows[0];
}

static int problem_of(const char *layout, const char *dtype, seen_problem *p) {
  p->a_transposed = layout[0] == 't', p->b_transposed = layout[0] && layout[1] == 't';
  p->bf16 = dtype[0] == 'b';
  if (p->m > 0 && p->n > 0 && p->k > 0) return 0;
  PyErr_SetString(PyExc_ValueError, "a problem has sizes above 0");
  return -1;
}

PyObject *predict_py(PyObject *module, PyObject *args) {
  (void)module;
  PyObject *capsule;
  seen_problem asked;
  const char *layout, *dtype;
  double values[MOST_ADMITTED][VALUES], ours[MOST_ADMITTED];
  Py_ssize_t which[MOST_ADMITTED];
  if (!PyArg_ParseTuple(args, "Oiiiss", &capsule, &asked.m, &asked.n, &asked.k, &layout, &dtype))
    return NULL;
  const predictor *p = PyCapsule_GetPointer(capsule, NAME);
  if (!p || problem_of(layout, dtype, &asked)) return NULL;
  int rows = 0;
  values[0][ABOVE_ALL] = INFINITY;
  features_of_problem(&p->device, &asked, values[0]);
  for (Py_ssize_t i = 0; i < p->count && rows < MOST_ADMITTED; i++) {
    if (!candidate_admits(&p->candidates[i], &asked)) continue;
    if (rows) memcpy(values[rows], values[0], sizeof values[0]);
    features_of_kernel(&p->device, &asked, &p->candidates[i], values[rows]);
    which[rows++] = i;
  }
  if (!rows) Py_RETURN_NONE;
  const int best = choose(&p->ours, rows, values, ours);
  return Py_BuildValue("(nddd)", which[best], ours[best], evaluate(&p->torch, values[best]),
                       evaluate(&p->doubt, values[best]));
}

PyObject *features_py(PyObject *module, PyObject *args) {
  (void)module;
  PyObject *capsule;
  seen_problem asked;
  const char *layout, *dtype;
  Py_ssize_t which;
  double values[FEATURE_COUNT];
  if (!PyArg_ParseTuple(args, "Oniiiss", &capsule, &which, &asked.m, &asked.n, &asked.k, &layout,
                        &dtype))
    return NULL;
  const predictor *p = PyCapsule_GetPointer(capsule, NAME);
  if (!p || problem_of(layout, dtype, &asked)) return NULL;
  if (which < 0 || which >= p->count) {
    PyErr_SetString(PyExc_IndexError, "the predictor has no such candidate");
    return NULL;
  }
  features_of_problem(&p->device, &asked, values);
  features_of_kernel(&p->device, &asked, &p->candidates[which], values);
  PyObject *result = PyTuple_New(FEATURE_COUNT);
  for (int i = 0; result && i < FEATURE_COUNT; i++) {
    PyObject *value = PyFloat_FromDouble(values[i]);
    if (!value || PyTuple_SetItem(result, i, value)) Py_CLEAR(result);
  }
  return result;
}

PyObject *floor_us_py(PyObject *module, PyObject *args) {
  (void)module;
  PyObject *capsule;
  seen_problem asked = {0};
  if (!PyArg_ParseTuple(args, "Oiii", &capsule, &asked.m, &asked.n, &asked.k)) return NULL;
  const predictor *p = PyCapsule_GetPointer(capsule, NAME);
  if (!p || problem_of("", "", &asked)) return NULL;
  return PyFloat_FromDouble(features_floor_us(&p->device, &asked));
}

PyObject *feature_names_py(PyObject *module, PyObject *unused) {
  (void)module, (void)unused;
#define FEATURE_TEXT(name) #name,
  static const char *const NAMES[] = {PROBLEM_FEATURES(FEATURE_TEXT) KERNEL_FEATURES(FEATURE_TEXT)};
#undef FEATURE_TEXT
  PyObject *result = PyTuple_New(FEATURE_COUNT);
  for (int i = 0; result && i < FEATURE_COUNT; i++) {
    PyObject *name = PyUnicode_FromString(NAMES[i]);
    if (!name || PyTuple_SetItem(result, i, name)) Py_CLEAR(result);
  }
  return result;
}
