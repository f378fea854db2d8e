#include "predictor.h"

#include <math.h>

#include "trees.h"

// Behind the first so many trees, how many candidates the rest is walked for.
static const struct {
  Py_ssize_t trees;
  int left;
} ROUNDS[] = {{12, 8}, {40, 4}, {100, 2}};
enum { ROUND_COUNT = sizeof ROUNDS / sizeof *ROUNDS };

enum { OURS, TORCH, DOUBT, MODELS };

// What is left of the trees for problems alike: of one layout, type, N and K, and an M within a
// sixteenth of the most. It is made when so many of them were decided, which pays for itself by as
// many, and forgotten where others take its place.
enum { NARROWED = 32, DECIDED_BEFORE = 3 };
typedef struct {
  seen_problem alike;  // with the most that M may be
  int decided;
  model left[MODELS];
} narrowed;

struct predictor {
  seen_device device;
  double margin, log_margin;
  candidate *candidates;
  Py_ssize_t count;
  model models[MODELS];
  double spread[ROUND_COUNT];  // what the trees behind a round may still take off
  narrowed narrowed[NARROWED];
};

// Candidates that one problem may have; the reader of packs allows no more.
enum { MOST_ADMITTED = 64 };
typedef struct {
  Py_ssize_t candidate;
  double ours, torch, doubt;
  int given_up;
} prediction;

static const char NAME[] = "hgemm_packs._C.predictor";

static void models_free(model models[MODELS]) {
  for (int i = 0; i < MODELS; i++)
    model_free(&models[i]);
}

static void predictor_free(predictor *p) {
  models_free(p->models);
  for (int i = 0; i < NARROWED; i++)
    models_free(p->narrowed[i].left);
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
                     model_read(&p->models[OURS], ours, FEATURE_COUNT) ||
                     model_read(&p->models[TORCH], torch, FEATURES_OF_PROBLEM) ||
                     model_read(&p->models[DOUBT], doubt, FEATURE_COUNT);
  for (int i = 0; !failed && i < ROUND_COUNT; i++)
    p->spread[i] = model_spread(&p->models[OURS], ROUNDS[i].trees);
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
static int choose(const predictor *p, const model *models, int count,
                  const uint32_t (*seen)[VALUES], int wanted, prediction *result) {
  const model *m = &models[OURS];
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
      result->doubt = model_value(&models[DOUBT], seen[rows[0]]), doubted = rows[0];
    const double gain = result->torch - sums[rows[0]] - result->doubt;
    result->given_up |= !last && gain + p->spread[round] < p->log_margin;
  }
  result->ours = sums[rows[0]];
  return rows[0];
}

// Leaves nodes that problems alike may come to. What grows or falls with M lies between its values
// at both ends, or less than two keys outside, for it is rounded.
static void narrow(const predictor *p, const seen_problem *alike, model left[MODELS]) {
#define FEATURE_STEADY(name, steady) steady,
  static const char STEADY[] = {PROBLEM_FEATURES(FEATURE_STEADY) KERNEL_FEATURES(FEATURE_STEADY)};
#undef FEATURE_STEADY
  const int32_t ends[2] = {alike->m / 16 + 1, alike->m};
  double values[FEATURE_COUNT];
  span spans[FEATURE_COUNT];
  for (int j = 0; j < FEATURE_COUNT; j++)
    spans[j] = STEADY[j] ? (span){UINT32_MAX, 0} : (span){0, UINT32_MAX};
  for (int i = 0; i < 2 * p->count; i++) {
    const candidate *each = &p->candidates[i / 2];
    seen_problem end = *alike;
    end.m = ends[i % 2];
    if (!candidate_is_of(each, &end)) continue;
    features_of_problem(&p->device, &end, values);
    features_of_kernel(&p->device, &end, each, values);
    for (int j = 0; j < FEATURE_COUNT; j++) {
      const uint32_t key = key_of(values[j]);
      if (spans[j].least > key - 2) spans[j].least = key - 2;
      if (spans[j].most < key + 2) spans[j].most = key + 2;
    }
  }
  for (int i = 0; i < MODELS; i++)
    if (model_narrow(&p->models[i], spans, &left[i])) return models_free(left);
}

// The models to ask about a problem that a candidate takes.
static const model *find_models(predictor *p, const seen_problem *asked) {
  seen_problem alike = *asked;
  alike.m = INT32_MAX >> (__builtin_clz((uint32_t)asked->m) - 1) / 4 * 4;
  uint32_t hash = (uint32_t)(alike.m << 2 | alike.a_transposed << 1 | alike.b_transposed);
  hash = (hash * 0x9E3779B1u ^ (uint32_t)alike.n) * 0x85EBCA77u ^ (uint32_t)alike.k;
  narrowed *found = &p->narrowed[(hash * 0xC2B2AE3Du >> 16) % NARROWED];
  if (memcmp(&found->alike, &alike, sizeof alike)) {
    models_free(found->left);
    found->alike = alike, found->decided = 0;
  }
  if (found->decided <= DECIDED_BEFORE && found->decided++ == DECIDED_BEFORE)
    narrow(p, &alike, found->left);
  return found->left[DOUBT].nodes ? found->left : p->models;
}

// Asks about a problem; 0 where no candidate takes it.
static int ask(predictor *p, const seen_problem *asked, int wanted, prediction *result) {
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
  const model *models = find_models(p, asked);
  result->torch = model_value(&models[TORCH], seen[0]);
  result->candidate = which[choose(p, models, rows, seen, wanted, result)];
  return 1;
}

Py_ssize_t predictor_choose(predictor *p, const seen_problem *asked) {
  prediction found;
  if (!ask(p, asked, 0, &found) || found.given_up) return -1;
  return exp(found.torch - found.ours - found.doubt) >= p->margin ? found.candidate : -1;
}

predictor *predictor_of(PyObject *capsule, Py_ssize_t *candidates) {
  predictor *p = PyCapsule_GetPointer(capsule, NAME);
  if (p) *candidates = p->count;
  return p;
}

// Reads (predictor, m, n, k, layout, dtype) and perhaps a candidate; NULL with an exception set.
static predictor *read_question(PyObject *args, seen_problem *p, Py_ssize_t *which) {
  PyObject *capsule;
  const char *layout, *dtype;
  Py_ssize_t count;
  if (!PyArg_ParseTuple(args, "Oiiiss|n", &capsule, &p->m, &p->n, &p->k, &layout, &dtype, which))
    return NULL;
  p->a_transposed = layout[0] == 't', p->b_transposed = layout[0] && layout[1] == 't';
  p->bf16 = dtype[0] == 'b';
  predictor *asked = predictor_of(capsule, &count);
  if (asked && (p->m <= 0 || p->n <= 0 || p->k <= 0))
    PyErr_SetString(PyExc_ValueError, "a problem has sizes above 0");
  else if (asked && (*which < 0 || *which >= count))
    PyErr_SetString(PyExc_IndexError, "the predictor has no such candidate");
  return PyErr_Occurred() ? NULL : asked;
}

PyObject *predict_py(PyObject *module, PyObject *args) {
  (void)module;
  seen_problem asked;
  Py_ssize_t unused = 0;
  prediction found;
  predictor *p = read_question(args, &asked, &unused);
  if (!p) return NULL;
  if (!ask(p, &asked, 1, &found)) Py_RETURN_NONE;
  return Py_BuildValue("(ndddi)", found.candidate, found.ours, found.torch, found.doubt,
                       found.given_up);
}

PyObject *features_py(PyObject *module, PyObject *args) {
  (void)module;
  seen_problem asked;
  Py_ssize_t which = -1;
  double values[FEATURE_COUNT];
  const predictor *p = read_question(args, &asked, &which);
  if (!p) return NULL;
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
  seen_problem asked;
  Py_ssize_t unused = 0;
  const predictor *p = read_question(args, &asked, &unused);
  return p ? PyFloat_FromDouble(features_floor_us(&p->device, &asked)) : NULL;
}
