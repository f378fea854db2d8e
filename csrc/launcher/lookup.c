#include "lookup.h"

#include <stdlib.h>
#include <string.h>

#include "cuda/kernel_type.h"
#include "unmeasured.h"

// Fallbacks need no memory of their own: one shared answer per reason.
static answer FALLBACKS[REASON_COUNT] = {
#define FALLBACK(name, text) [REASON_##name] = {.fallback = REASON_##name},
    REASONS(FALLBACK)
#undef FALLBACK
};

static answer *fallback(reason why) {
  return &FALLBACKS[why];
}

void lookup_release(answer *entry) {
  if (entry->fallback != REASON_COUNT || --entry->users) return;
  free(entry);
}

static void forget(table *which) {
  for (uint32_t i = 0; i < which->capacity; i++)
    if (which->slots[i].value) lookup_release(which->slots[i].value);
  free(which->slots);
  *which = (table){0};
}

void lookup_reset(launcher_state *state) {
  forget(&state->table);
  forget(&state->older);
  unmeasured_reset(state);
}

static void give_up(table *which, const problem_key *key, reason why) {
  table_slot *slot = table_slot_of(which, key);
  if (!slot) return;
  answer *old = slot->value;
  slot->value = fallback(why);
  lookup_release(old);
}

void lookup_give_up(launcher_state *state, const problem_key *key, reason why) {
  give_up(&state->table, key, why);
  give_up(&state->older, key, why);
}

// Remembers an answer, which the table then owns; -1 where there is no memory. Where this
// generation is full, the one before it goes.
static int remember(launcher_state *state, const problem_key *key, answer *entry) {
  if (state->table.count >= TABLE_LIMIT) {
    forget(&state->older);
    state->older = state->table;
    state->table = (table){0};
  }
  return table_put(&state->table, key, entry);
}

// The answer of the generation before, which thereby belongs to this one, too; or NULL.
static answer *find_older(launcher_state *state, const problem_key *key) {
  answer *entry = table_find(&state->older, key);
  if (!entry) return NULL;
  if (entry->fallback == REASON_COUNT) entry->users++;  // for good, should memory have run out
  remember(state, key, entry);
  return entry;
}

PyObject *problem_tuple(const problem *p) {
  return Py_BuildValue("(iiiss(iii)isi)", p->shape.m, p->shape.n, p->shape.k, problem_layout(p),
                       p->a.type == DL_BFLOAT ? "bf16" : "f16", p->align[0], p->align[1],
                       p->align[2], p->packed, FINISH_NAMES[p->finish], products_of(&p->shape));
}

static reason named_reason(PyObject *name) {
  for (int i = 0; i < REASON_COUNT; i++)
    if (PyUnicode_CompareWithASCIIString(name, REASON_NAMES[i]) == 0) return (reason)i;
  return REASON_REFUSED;
}

// Binds a kernel that is launched dependent or not to `p`; -1 where it is none for that.
static int make_plan(launcher_state *state, const problem *p, const loaded_kernel *kernel, int pdl,
                     plan *result) {
  // C is not known yet; the 16 bytes in which A begins stand in for it.
  char *const c = p->a.data - (uintptr_t)p->a.data % 16;
  void *const addresses[ADDRESSES] = {p->a.data, p->b.data, c, p->addend};
  const launch_record *record = &kernel->record;
  const int fits = kernel->device == p->a.device && record->dtype == p->a.type &&
                   record->transposed[0] == p->transposed[0] &&
                   record->transposed[1] == p->transposed[1] && record->pdl == pdl &&
                   record->epilogue == FINISH_KINDS[p->finish];
  return fits && !plan_make(&state->driver, kernel, &p->shape, addresses, result) ? 0 : -1;
}

// The answer with these kernels; `dependent` may be NULL, and one that is of no use is left out.
static answer *plan_answer(launcher_state *state, const problem *p, const loaded_kernel *own,
                           const loaded_kernel *dependent, int predicted) {
  answer *entry = aligned_alloc(_Alignof(answer), sizeof *entry);
  if (!entry) return (answer *)PyErr_NoMemory();
  entry->fallback = REASON_COUNT;
  entry->users = 1;
  entry->predicted = predicted;
  if (make_plan(state, p, own, 0, &entry->own)) {
    lookup_release(entry);
    return fallback(REASON_REFUSED);
  }
  if (!dependent || make_plan(state, p, dependent, 1, &entry->dependent))
    entry->dependent = (plan){0};
  return entry;
}

// What Python found, as an answer: a name, or a pair of kernels of which the second may be None and
// whether they are predicted.
static answer *read_answer(launcher_state *state, const problem *p, PyObject *found) {
  PyObject *first, *second;
  int predicted;
  if (PyUnicode_Check(found)) return fallback(named_reason(found));
  if (!PyArg_ParseTuple(found, "OOp", &first, &second, &predicted)) return NULL;
  const loaded_kernel *own = kernel_of(state, first), *dependent = NULL;
  if (own && second != Py_None && !(dependent = kernel_of(state, second))) return NULL;
  return own ? plan_answer(state, p, own, dependent, predicted) : NULL;
}

// While the caller's stream is being captured nothing may be loaded. A stream that the driver
// refuses to tell about counts as capturing: a capture elsewhere in the process is the usual cause.
static int is_capturing(launcher_state *state, const problem *p) {
  const cu_driver *driver = &state->driver;
  const gpu *device = state_device(state, p->a.device);
  void *stream;
  int pushed, status = CU_CAPTURE_NONE;
  if (!device) {
    PyErr_Clear();
    return 0;  // nothing can be loaded either
  }
  if (state->exchange->current_stream(state->device_type, p->a.device, &stream)) {
    PyErr_Clear();
    return 1;
  }
  // The default stream is the current context's, and a thread that is new has none.
  cu_result code = device_enter(driver, device->context, &pushed);
  if (code == CU_OK) code = driver->stream_capturing(stream, &status);
  device_leave(driver, pushed);
  return code != CU_OK || status != CU_CAPTURE_NONE;
}

// What Python leaves to torch it leaves with whatever strides: Python knows none.
static problem_key without_strides(const problem *p) {
  problem_key key = p->key;
  key.lead[0] = key.lead[1] = key.step[0] = key.step[1] = 0;
  return key;
}

// Remembers an answer, and returns it; NULL with an exception set where there is no memory.
static answer *keep(launcher_state *state, const problem_key *key, answer *entry) {
  // Another thread may have answered the same problem while Python ran.
  answer *present = table_find(&state->table, key);
  if (!present && !remember(state, key, entry)) return entry;
  lookup_release(entry);
  return present ? present : (answer *)PyErr_NoMemory();
}

static answer *resolve(launcher_state *state, const problem *p, int unmeasured) {
  PyObject *described = problem_tuple(p);
  if (!described) return NULL;
  PyObject *found =
      PyObject_CallFunction(state->torch.resolve, "Oiiii", described, p->a.device,
                            is_capturing(state, p), problem_is_invariant(p), unmeasured);
  Py_DECREF(described);
  if (!found) return NULL;
  answer *entry = read_answer(state, p, found);
  const problem_key key = PyUnicode_Check(found) ? without_strides(p) : p->key;
  if (entry && entry->fallback == REASON_COUNT && entry->predicted)
    unmeasured_keep(state, p, PyTuple_GetItem(found, 0));
  Py_DECREF(found);
  // A capture ends; the next call outside it may load the kernel.
  if (!entry || entry->fallback == REASON_COLD_CAPTURE) return entry;
  return keep(state, &key, entry);
}

// Why torch runs a problem without a row, in the words of Python.
static reason unmeasured_reason(const problem *p) {
  if (!p->packed) return REASON_STRIDED;
  for (int i = 0; i < 3; i++)
    if (p->align[i] < 16) return REASON_UNALIGNED;
  return REASON_NOT_MEASURED;
}

// The answer to a problem without a row where Python is not needed; NULL where it is, or with an
// exception set. What torch runs under capture may be its first product: Python sees to that.
static answer *decide(launcher_state *state, const problem *p) {
  const loaded_kernel *kernel;
  if (!unmeasured_decide(state, p, &kernel) || (!kernel && is_capturing(state, p))) return NULL;
  answer *entry = kernel ? plan_answer(state, p, kernel, NULL, 1) : fallback(unmeasured_reason(p));
  if (!entry || entry->fallback == REASON_REFUSED) return NULL;
  const problem_key key = kernel ? p->key : without_strides(p);
  return keep(state, &key, entry);
}

// Tells Python of a call, where calls are recorded. What goes wrong there is said, and is no error
// of the call.
static void tell_of(launcher_state *state, const problem *p) {
  PyObject *told = Py_NewRef(state->record), *described = problem_tuple(p);
  PyObject *none = described ? PyObject_CallFunction(told, "(O)", described) : NULL;
  if (!none) PyErr_WriteUnraisable(told);
  Py_XDECREF(none);
  Py_XDECREF(described);
  Py_DECREF(told);
}

answer *lookup(launcher_state *state, const problem *p) {
  if (state->record) tell_of(state, p);
  answer *entry = table_find(&state->table, &p->key);
  if (!entry && state->older.count) entry = find_older(state, &p->key);
  if (!entry && !p->packed) {
    const problem_key key = without_strides(p);
    entry = table_find(&state->table, &key);
    if (!entry && state->older.count) entry = find_older(state, &key);
  }
  if (entry) return entry;
  // Under STRICT every call without a kernel raises, and says all that there is to say.
  const unmeasured_state known = unmeasured_find(state, p, !state->strict);
  if (known == WAITING) return fallback(unmeasured_reason(p));
  entry = known == UNDECIDED ? decide(state, p) : NULL;
  return entry || PyErr_Occurred() ? entry : resolve(state, p, known == UNDECIDED);
}
