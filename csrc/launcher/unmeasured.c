#include "unmeasured.h"

#include <stdlib.h>
#include <string.h>

#include "predictor.h"

// Decisions at first sight: what a program with few shapes meets while it warms up. More of them
// would cost a stream of sizes a microsecond a call.
enum { AT_FIRST_SIGHT = 32 };
// Problems that are remembered as seen once: of each of SETS, which hashes divide them into, the
// WAYS seen last, the last one first.
enum { SETS = 2048, WAYS = 4 };

struct unmeasured {
  int unreadable;
  uint32_t decided;
  uint64_t *rows;  // hashes, open addressing; 0: free
  size_t capacity, count;
  uint32_t seen[SETS][WAYS];
  int decides;
  predictor *predictor;  // NULL: nothing is predicted
  PyObject *capsule;     // its owner
  PyObject **kernels;    // of its candidates, owned; NULL until Python has loaded one
  Py_ssize_t candidates;
};

// What a row and a problem are compared by: sizes, storage, type, epilogue, batches. Alignment and
// device are not in it, so that a row is never overlooked.
static uint64_t hash(uint64_t m, uint64_t n, uint64_t k, uint64_t kind) {
  uint64_t mixed = (m << 32 | n) * UINT64_C(0x9E3779B97F4A7C15);
  mixed = (mixed ^ (mixed >> 29)) + (k << 32 | kind);
  mixed *= UINT64_C(0xB504F333F9DE6485);
  mixed = (mixed ^ (mixed >> 32)) * UINT64_C(0x9E3779B97F4A7C15);
  mixed ^= mixed >> 29;
  return mixed ? mixed : 1;
}

static uint64_t kind_of(int a_transposed, int b_transposed, int bf16, int how, uint32_t batches) {
  return (uint32_t)(a_transposed | b_transposed << 1 | bf16 << 2 | how << 3) | batches << 8;
}

static uint64_t hash_of(const problem *p) {
  const int bf16 = p->a.type == DL_BFLOAT;
  return hash(p->key.m, p->key.n, p->key.k,
              kind_of(p->transposed[0], p->transposed[1], bf16, (int)p->finish, p->key.batches));
}

static size_t locate(const uint64_t *rows, size_t capacity, uint64_t wanted) {
  size_t i = wanted & (capacity - 1);
  while (rows[i] && rows[i] != wanted)
    i = (i + 1) & (capacity - 1);
  return i;
}

static int insert(struct unmeasured *u, uint64_t row) {
  if (2 * (u->count + 1) > u->capacity) {
    const size_t capacity = u->capacity ? 2 * u->capacity : 4096;
    uint64_t *rows = calloc(capacity, sizeof *rows);
    if (!rows) return -1;
    for (size_t i = 0; i < u->capacity; i++)
      if (u->rows[i]) rows[locate(rows, capacity, u->rows[i])] = u->rows[i];
    free(u->rows);
    u->rows = rows, u->capacity = capacity;
  }
  const size_t i = locate(u->rows, u->capacity, row);
  u->count += !u->rows[i];
  u->rows[i] = row;
  return 0;
}

// What stands behind `name` in the line, or NULL. Advances the line to it.
static const char *value_of(const char **line, const char *end, const char *name) {
  const size_t size = strlen(name);
  const char *found = memmem(*line, (size_t)(end - *line), name, size);
  return found ? (*line = found + size) : NULL;
}

static int integer_of(const char **line, const char *end, const char *name, uint64_t *result) {
  const char *at = value_of(line, end, name);
  *result = 0;
  if (!at) return -1;
  for (; at < end && *at >= '0' && *at <= '9'; at++)
    *result = *result * 10 + (uint64_t)(*at - '0');
  return at < end && *result && *result <= INT32_MAX ? 0 : -1;
}

static int starts(const char *at, const char *end, const char *text) {
  const size_t size = strlen(text);
  return at && (size_t)(end - at) > size && !memcmp(at, text, size) && at[size] == '"';
}

// A row's hash, 0 where the line is not written as our packer writes it, fields in their order.
static uint64_t read_row(const char *line, const char *end) {
  uint64_t m, n, k, batches = 0;
  const char *batch = line;  // few rows have the field
  integer_of(&batch, end, "\"batches\":", &batches);
  const char *dtype = value_of(&line, end, "\"dtype\":\"");
  const char *epilogue = dtype ? value_of(&line, end, "\"epilogue\":\"") : NULL;
  if (!epilogue || integer_of(&line, end, "\"k\":", &k)) return 0;
  const char *layout = value_of(&line, end, "\"layout\":\"");
  if (!layout || end - layout < 3 || integer_of(&line, end, "\"m\":", &m) ||
      integer_of(&line, end, "\"n\":", &n))
    return 0;
  const int bf16 = starts(dtype, end, "bf16");
  for (int how = 0; how < FINISH_COUNT; how++)
    if (starts(epilogue, end, FINISH_NAMES[how]))
      return hash(m, n, k,
                  kind_of(layout[0] == 't', layout[1] == 't', bf16, how, (uint32_t)batches));
  return 0;
}

static void read_rows(struct unmeasured *u, const char *at, const char *end) {
  while (at < end && !u->unreadable) {
    const char *stop = memchr(at, '\n', (size_t)(end - at));
    if (!stop) stop = end;
    const uint64_t row = read_row(at, stop);
    u->unreadable = !row || insert(u, row);
    at = stop + 1;
  }
}

PyObject *unmeasured_know_rows(PyObject *module, PyObject *args) {
  launcher_state *state = state_of(module);
  int device;
  const char *lines;
  Py_ssize_t size, start, end;
  if (!PyArg_ParseTuple(args, "iy#nn", &device, &lines, &size, &start, &end)) return NULL;
  const int inside =
      device >= 0 && device < MAX_DEVICES && start >= 0 && start <= end && end <= size;
  if (inside && !state->unmeasured[device])
    state->unmeasured[device] = calloc(1, sizeof *state->unmeasured[device]);
  struct unmeasured *u = inside ? state->unmeasured[device] : NULL;
  if (u) read_rows(u, lines + start, lines + end);
  if (u) Py_RETURN_NONE;
  if (inside) return PyErr_NoMemory();
  return PyErr_Format(PyExc_ValueError, "no such device, or no such part of the lines");
}

static void drop_predictor(struct unmeasured *u) {
  for (Py_ssize_t i = 0; i < u->candidates; i++)
    Py_XDECREF(u->kernels[i]);
  PyMem_Free(u->kernels);
  Py_XDECREF(u->capsule);
  u->decides = 0, u->predictor = NULL, u->capsule = NULL, u->kernels = NULL, u->candidates = 0;
}

PyObject *unmeasured_know_predictor(PyObject *module, PyObject *args) {
  int device;
  PyObject *capsule;
  if (!PyArg_ParseTuple(args, "iO", &device, &capsule)) return NULL;
  const int inside = device >= 0 && device < MAX_DEVICES;
  struct unmeasured *u = inside ? state_of(module)->unmeasured[device] : NULL;
  if (!u) Py_RETURN_NONE;
  if (!u->capsule || u->capsule != capsule) {
    Py_ssize_t count = 0;
    predictor *found = capsule == Py_None ? NULL : predictor_of(capsule, &count);
    PyObject **kernels = PyMem_Calloc((size_t)count + 1, sizeof *kernels);
    if (!kernels) PyErr_NoMemory();
    if (PyErr_Occurred()) return PyMem_Free(kernels), NULL;
    drop_predictor(u);
    u->predictor = found, u->capsule = Py_NewRef(capsule);
    u->kernels = kernels, u->candidates = count;
  }
  u->decides = 1;
  Py_RETURN_NONE;
}

PyObject *unmeasured_forget_predictors(PyObject *module, PyObject *unused) {
  (void)unused;
  launcher_state *state = state_of(module);
  for (int i = 0; i < MAX_DEVICES; i++)
    if (state->unmeasured[i]) drop_predictor(state->unmeasured[i]);
  Py_RETURN_NONE;
}

// The candidate that a predictor gives `p` to, or -1. It knows plain products of packed operands,
// at addresses that are aligned as well as their rows.
static Py_ssize_t candidate_of(const struct unmeasured *u, const problem *p) {
  const seen_problem seen = {.m = p->shape.m,
                             .n = p->shape.n,
                             .k = p->shape.k,
                             .a_transposed = p->transposed[0],
                             .b_transposed = p->transposed[1],
                             .bf16 = p->a.type == DL_BFLOAT};
  if (!u->predictor || !p->packed || p->finish != FINISH_NONE || p->shape.batches > 1) return -1;
  const int32_t rows[3] = {p->shape.ld[0], p->shape.ld[1], p->shape.n};
  for (int i = 0; i < 3; i++) {
    const uint32_t bytes = 16 | (uint32_t)rows[i] * 2;
    if ((uint32_t)p->align[i] != (bytes & -bytes)) return -1;
  }
  return predictor_choose(u->predictor, &seen);
}

int unmeasured_decide(const launcher_state *state, const problem *p, const loaded_kernel **kernel) {
  const struct unmeasured *u = state->unmeasured[p->a.device];
  *kernel = NULL;
  if (!u->decides) return 0;
  const Py_ssize_t candidate = candidate_of(u, p);
  if (candidate < 0) return 1;
  if (u->kernels[candidate]) *kernel = kernel_of(state, u->kernels[candidate]);
  return *kernel != NULL;
}

void unmeasured_keep(launcher_state *state, const problem *p, PyObject *kernel) {
  struct unmeasured *u = state->unmeasured[p->a.device];
  const Py_ssize_t candidate = u && u->decides ? candidate_of(u, p) : -1;
  if (candidate >= 0 && !u->kernels[candidate]) u->kernels[candidate] = Py_NewRef(kernel);
}

unmeasured_state unmeasured_find(launcher_state *state, const problem *p, int wait) {
  struct unmeasured *u = state->unmeasured[p->a.device];
  if (!u || u->unreadable || problem_is_invariant(p)) return MAYBE_MEASURED;
  const uint64_t wanted = hash_of(p);
  if (u->capacity && u->rows[locate(u->rows, u->capacity, wanted)]) return MAYBE_MEASURED;
  if (!wait) return UNDECIDED;
  if (u->decided < AT_FIRST_SIGHT) return u->decided++, UNDECIDED;
  const uint64_t mixed = wanted + p->key.tag;  // of the alignment, too
  uint32_t *set = u->seen[mixed & (SETS - 1)];
  const uint32_t mark = (uint32_t)(mixed >> 32) | 1;
  int at = 0;
  while (at < WAYS - 1 && set[at] != mark)
    at++;
  const int again = set[at] == mark;
  memmove(set + 1, set, (size_t)at * sizeof *set);
  set[0] = mark;
  return again ? UNDECIDED : WAITING;
}

void unmeasured_reset(launcher_state *state) {
  for (int i = 0; i < MAX_DEVICES; i++) {
    if (!state->unmeasured[i]) continue;
    drop_predictor(state->unmeasured[i]);
    free(state->unmeasured[i]->rows);
    free(state->unmeasured[i]);
    state->unmeasured[i] = NULL;
  }
}
