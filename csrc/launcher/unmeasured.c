#include "unmeasured.h"

#include <stdlib.h>
#include <string.h>

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
  PyErr_SetString(PyExc_ValueError, "no such device, or no such part of the lines");
  return NULL;
}

int unmeasured_is_known(const launcher_state *state, const problem *p) {
  const struct unmeasured *u = state->unmeasured[p->a.device];
  if (!u || u->unreadable || problem_is_invariant(p)) return 0;
  const uint64_t wanted = hash_of(p);
  return !u->capacity || !u->rows[locate(u->rows, u->capacity, wanted)];
}

int unmeasured_waits(launcher_state *state, const problem *p) {
  struct unmeasured *u = state->unmeasured[p->a.device];
  if (u->decided < AT_FIRST_SIGHT) return u->decided++, 0;
  const uint64_t mixed = hash_of(p) + p->key.tag;  // of the alignment, too
  uint32_t *set = u->seen[mixed & (SETS - 1)];
  const uint32_t mark = (uint32_t)(mixed >> 32) | 1;
  int at = 0;
  while (at < WAYS - 1 && set[at] != mark)
    at++;
  const int again = set[at] == mark;
  memmove(set + 1, set, (size_t)at * sizeof *set);
  set[0] = mark;
  return !again;
}

void unmeasured_reset(launcher_state *state) {
  for (int i = 0; i < MAX_DEVICES; i++) {
    if (state->unmeasured[i]) free(state->unmeasured[i]->rows);
    free(state->unmeasured[i]);
    state->unmeasured[i] = NULL;
  }
}
