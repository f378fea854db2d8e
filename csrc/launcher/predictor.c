#include "predictor.h"

#include <math.h>

#include "trees.h"

// Behind the first so many trees, how many candidates the rest is walked for.
static const struct {
  Py_ssize_t trees;
  int left;
} ROUNDS[] = {{12, 8}, {40, 4}, {100, 2}};
enum { ROUND_COUNT = sizeof ROUNDS / sizeof *ROUNDS };

struct predictor {
  seen_device device;
  double margin, log_margin;
  candidate *candidates;
  Py_ssize_t count;
  model ours, torch, doubt;
  double spread[ROUND_COUNT];  // what the trees behind a round may still take off
};

// Candidates that one problem may have; the reader of packs allows no more.
enum { MOST_ADMITTED = 64 };
typedef struct {
  Py_ssize_t candidate;
  double ours, torch, doubt;
  int given_up;
} prediction;

static const char NAME[] = "hgemm_packs._C.predictor";

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
                                each->slices,     each->threads,    each->group};
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
  double margin;
  seen_device device;
  if (!PyArg_ParseTuple(args, "iddy#O!O!O!", &device.sm_count, &device.gbps, &margin, &candidates,
                        &bytes, &PyTuple_Type, &ours, &PyTuple_Type, &torch, &PyTuple_Type, &doubt))
    return NULL;
  predictor *p = PyMem_Calloc(1, sizeof *p);
  if (!p) return PyErr_NoMemory();
  p->device = device, p->margin = margin, p->log_margin = log(margin);
  const int failed = candidates_read(p, candidates, bytes) ||
                     model_read(&p->ours, ours, FEATURE_COUNT) ||
                     model_read(&p->torch, torch, FEATURES_OF_PROBLEM) ||
                     model_read(&p->doubt, doubt, FEATURE_COUNT);
  for (int i = 0; !failed && i < ROUND_COUNT; i++)
    p->spread[i] = model_spread(&p->ours, ROUNDS[i].trees);
  PyObject *capsule = failed ? NULL : PyCapsule_New(p, NAME, capsule_free);
  if (!capsule) predictor_free(p);
  return capsule;
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

// Finds the row of the least sum, among those that the rounds leave, with its sum and doubt. The
// problem is given up where what is left of the trees could hardly bring our time, with its doubt
// from the second round on, to torch's; all the rest is computed only if it is `wanted`. Returns
// the row.
static int choose(const predictor *p, int count, const uint32_t (*seen)[VALUES], int wanted,
                  prediction *result) {
  const model *m = &p->ours;
  int rows[MOST_ADMITTED], doubted = -1;
  double sums[MOST_ADMITTED];
  Py_ssize_t from = 0;
  for (int i = 0; i < count; i++)
    rows[i] = i, sums[i] = m->base;
  result->doubt = 0.0, result->given_up = 0;
  for (int round = 0; round <= ROUND_COUNT && (wanted || !result->given_up); round++) {
    const int last = round == ROUND_COUNT;
    Py_ssize_t to = last ? m->tree_count : ROUNDS[round].trees;
    if (to > m->tree_count) to = m->tree_count;
    const int left = last ? 1 : ROUNDS[round].left;
    model_add(m, from, to, rows, count, seen, sums);
    least_first(rows, count, left < count ? left : count, sums);
    if (count > left) count = left;
    from = to;
    if (round && doubted != rows[0])
      result->doubt = model_value(&p->doubt, seen[rows[0]]), doubted = rows[0];
    const double gain = result->torch - sums[rows[0]] - result->doubt;
    result->given_up |= !last && gain + p->spread[round] < p->log_margin;
  }
  result->ours = sums[rows[0]];
  return rows[0];
}

// Asks about a problem; 0 where no candidate takes it.
static int ask(const predictor *p, const seen_problem *asked, int wanted, prediction *result) {
  uint32_t seen[MOST_ADMITTED][VALUES];
  double values[FEATURE_COUNT];
  Py_ssize_t which[MOST_ADMITTED];
  int rows = 0;
  features_of_problem(&p->device, asked, values);
  for (Py_ssize_t i = 0; i < p->count && rows < MOST_ADMITTED; i++) {
    if (!candidate_admits(&p->device, &p->candidates[i], asked)) continue;
    features_of_kernel(&p->device, asked, &p->candidates[i], values);
    if (rows) memcpy(seen[rows], seen[0], sizeof seen[0]);  // the problem's own
    for (int j = rows ? FEATURES_OF_PROBLEM : 0; j < FEATURE_COUNT; j++)
      seen[rows][j] = key_of(values[j]);
    seen[rows][BELOW_ALL] = 0;
    which[rows++] = i;
  }
  if (!rows) return 0;
  result->torch = model_value(&p->torch, seen[0]);
  result->candidate = which[choose(p, rows, seen, wanted, result)];
  return 1;
}

Py_ssize_t predictor_choose(const predictor *p, const seen_problem *asked) {
  prediction found;
  if (!ask(p, asked, 0, &found) || found.given_up) return -1;
  return exp(found.torch - found.ours - found.doubt) >= p->margin ? found.candidate : -1;
}

const predictor *predictor_of(PyObject *capsule, Py_ssize_t *candidates) {
  const predictor *p = PyCapsule_GetPointer(capsule, NAME);
  if (p) *candidates = p->count;
  return p;
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
  prediction found;
  if (!PyArg_ParseTuple(args, "Oiiiss", &capsule, &asked.m, &asked.n, &asked.k, &layout, &dtype))
    return NULL;
  const predictor *p = PyCapsule_GetPointer(capsule, NAME);
  if (!p || problem_of(layout, dtype, &asked)) return NULL;
  if (!ask(p, &asked, 1, &found)) Py_RETURN_NONE;
  return Py_BuildValue("(ndddi)", found.candidate, found.ours, found.torch, found.doubt,
                       found.given_up);
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
  if (!candidate_admits(&p->device, &p->candidates[which], &asked)) Py_RETURN_NONE;
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
