#include "trees.h"

#include <string.h>

#include "feature_values.h"

// An inner node sends what is at most `number` to the node behind it and the rest to `right`; a
// leaf, whose feature is -1, has its value there.
typedef struct {
  double number;
  int32_t feature, right;
} node;

typedef struct {
  double base;
  int32_t *roots;
  node *nodes;
  Py_ssize_t trees, count;
} model;

typedef struct {
  seen_device device;
  candidate *candidates;
  Py_ssize_t count;
  model ours, torch, doubt;
} predictor;

// Candidates that one problem may have; the reader of packs allows no more.
enum { MOST_ADMITTED = 64 };

static const char NAME[] = "hgemm_packs._C.predictor";

static void model_free(model *m) {
  PyMem_Free(m->roots);
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

// Whether every walk through the trees stays inside and ends: children stand behind their parents.
static int model_ends(const model *m, int features) {
  for (Py_ssize_t t = 0; t < m->trees; t++) {
    const Py_ssize_t first = m->roots[t], end = t + 1 < m->trees ? m->roots[t + 1] : m->count;
    if (first < 0 || first >= end || end > m->count || (!t && first)) return 0;
    for (Py_ssize_t i = first; i < end; i++) {
      const node *each = &m->nodes[i];
      if (each->feature == -1) continue;
      if (each->feature < 0 || each->feature >= features || each->right <= i + 1 ||
          each->right >= end)
        return 0;
    }
  }
  return 1;
}

static int model_read(model *m, PyObject *from, int features) {
  const char *roots, *features_, *numbers, *rights;
  Py_ssize_t sizes[4];
  if (!PyArg_ParseTuple(from, "dy#y#y#y#", &m->base, &roots, &sizes[0], &features_, &sizes[1],
                        &numbers, &sizes[2], &rights, &sizes[3]))
    return -1;
  m->trees = sizes[0] / (Py_ssize_t)sizeof(int32_t);
  m->count = sizes[2] / (Py_ssize_t)sizeof(double);
  const int fine = sizes[1] == m->count * (Py_ssize_t)sizeof(int32_t) && sizes[1] == sizes[3];
  m->roots = PyMem_Calloc((size_t)m->trees + 1, sizeof *m->roots);
  m->nodes = PyMem_Calloc((size_t)m->count + 1, sizeof *m->nodes);
  if (fine && m->roots && m->nodes) {
    memcpy(m->roots, roots, (size_t)m->trees * sizeof *m->roots);
    for (Py_ssize_t i = 0; i < m->count; i++) {
      node *each = &m->nodes[i];
      memcpy(&each->number, numbers + i * (Py_ssize_t)sizeof(double), sizeof each->number);
      memcpy(&each->feature, features_ + i * (Py_ssize_t)sizeof(int32_t), sizeof each->feature);
      memcpy(&each->right, rights + i * (Py_ssize_t)sizeof(int32_t), sizeof each->right);
    }
  }
  if (!m->roots || !m->nodes) {
    PyErr_NoMemory();
    return -1;
  }
  if (fine && model_ends(m, features)) return 0;
  PyErr_SetString(PyExc_ValueError, "a tree of a predictor does not end");
  return -1;
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
                                each->cluster_k,  each->slices,     each->threads};
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

static double leaf(const model *m, Py_ssize_t tree, const double *values) {
  const node *at = &m->nodes[m->roots[tree]];
  while (at->feature >= 0)
    at = values[at->feature] <= at->number ? at + 1 : &m->nodes[at->right];
  return at->number;
}

// Adds up the trees for all rows, tree by tree: one tree at a time is in the cache.
static void evaluate(const model *m, int rows, double (*values)[FEATURE_COUNT], double *sums) {
  for (int i = 0; i < rows; i++)
    sums[i] = m->base;
  for (Py_ssize_t t = 0; t < m->trees; t++)
    for (int i = 0; i < rows; i++)
      sums[i] += leaf(m, t, values[i]);
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
  double values[MOST_ADMITTED][FEATURE_COUNT], ours[MOST_ADMITTED], torch, doubt;
  Py_ssize_t which[MOST_ADMITTED];
  if (!PyArg_ParseTuple(args, "Oiiiss", &capsule, &asked.m, &asked.n, &asked.k, &layout, &dtype))
    return NULL;
  const predictor *p = PyCapsule_GetPointer(capsule, NAME);
  if (!p || problem_of(layout, dtype, &asked)) return NULL;
  int rows = 0, best = 0;
  features_of_problem(&p->device, &asked, values[0]);
  for (Py_ssize_t i = 0; i < p->count && rows < MOST_ADMITTED; i++) {
    if (!candidate_admits(&p->candidates[i], &asked)) continue;
    if (rows) memcpy(values[rows], values[0], sizeof values[0]);
    features_of_kernel(&p->device, &asked, &p->candidates[i], values[rows]);
    which[rows++] = i;
  }
  if (!rows) Py_RETURN_NONE;
  evaluate(&p->ours, rows, values, ours);
  evaluate(&p->torch, 1, values, &torch);
  for (int i = 1; i < rows; i++)
    if (ours[i] < ours[best]) best = i;
  evaluate(&p->doubt, 1, &values[best], &doubt);
  return Py_BuildValue("(nddd)", which[best], ours[best], torch, doubt);
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
