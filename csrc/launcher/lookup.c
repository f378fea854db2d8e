#include "lookup.h"

#include <stdlib.h>
#include <string.h>

#include "cuda/kernel_type.h"

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

void lookup_reset(launcher_state *state) {
  // Detached first: releasing a tuple may run Python, which may use the table.
  table old = state->table;
  state->table = (table){0};
  for (uint32_t i = 0; i < old.capacity; i++)
    if (old.slots[i].value) lookup_release(old.slots[i].value);
  free(old.slots);
}

void lookup_give_up(launcher_state *state, const problem_key *key, reason why) {
  table_slot *slot = table_slot_of(&state->table, key);
  if (!slot) return;
  answer *old = slot->value;
  slot->value = fallback(why);
  lookup_release(old);
}

PyObject *problem_tuple(const problem *p) {
  return Py_BuildValue("(iiissiis)", p->shape.m, p->shape.n, p->shape.k, problem_layout(p),
                       p->a.type == DL_BFLOAT ? "bf16" : "f16", p->align, p->packed,
                       FINISH_NAMES[p->finish]);
}

static reason named_reason(PyObject *name) {
  for (int i = 0; i < REASON_COUNT; i++)
    if (PyUnicode_CompareWithASCIIString(name, REASON_NAMES[i]) == 0) return (reason)i;
  return REASON_REFUSED;
}

// Binds a kernel that is launched dependent or not to `p`; -1 where it is none for that.
static int make_plan(launcher_state *state, const problem *p, const loaded_kernel *kernel, int pdl,
                     plan *result) {
  // C is not known yet; A stands in for it, equally aligned in a problem that gets a kernel.
  void *const addresses[ADDRESSES] = {p->a.data, p->b.data, p->a.data, p->addend};
  const launch_record *record = &kernel->record;
  const int fits = kernel->device == p->a.device && record->dtype == p->a.type &&
                   record->transposed[0] == p->transposed[0] &&
                   record->transposed[1] == p->transposed[1] && record->pdl == pdl &&
                   record->epilogue == FINISH_KINDS[p->finish];
  return fits && !plan_make(&state->driver, kernel, &p->shape, addresses, result) ? 0 : -1;
}

// The answer with these kernels; `dependent` may be NULL, and one that is of no use is left out.
static answer *plan_answer(launcher_state *state, const problem *p, const loaded_kernel *own,
                           const loaded_kernel *dependent) {
  answer *entry = aligned_alloc(_Alignof(answer), sizeof *entry);
  if (!entry) return (answer *)PyErr_NoMemory();
  entry->fallback = REASON_COUNT;
  entry->users = 1;
  if (make_plan(state, p, own, 0, &entry->own)) {
    lookup_release(entry);
    return fallback(REASON_REFUSED);
  }
  if (!dependent || make_plan(state, p, dependent, 1, &entry->dependent))
    entry->dependent = (plan){0};
  return entry;
}

// What Python found, a name or a pair of kernels of which the second may be None, as an answer.
static answer *read_answer(launcher_state *state, const problem *p, PyObject *found) {
  PyObject *first, *second;
  if (PyUnicode_Check(found)) return fallback(named_reason(found));
  if (!PyArg_ParseTuple(found, "OO", &first, &second)) return NULL;
  const loaded_kernel *own = kernel_of(state, first), *dependent = NULL;
  if (own && second != Py_None && !(dependent = kernel_of(state, second))) return NULL;
  return own ? plan_answer(state, p, own, dependent) : NULL;
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

static answer *resolve(launcher_state *state, const problem *p) {
  PyObject *described = problem_tuple(p);
  if (!described) return NULL;
  PyObject *found = PyObject_CallFunction(state->torch.resolve, "Oiii", described, p->a.device,
                                          is_capturing(state, p), problem_is_invariant(p));
  Py_DECREF(described);
  if (!found) return NULL;
  answer *entry = read_answer(state, p, found);
  Py_DECREF(found);
  // A capture ends; the next call outside it may load the kernel.
  if (!entry || entry->fallback == REASON_COLD_CAPTURE) return entry;
  // Another thread may have answered the same problem while Python ran.
  answer *present = table_find(&state->table, &p->key);
  if (present) {
    lookup_release(entry);
    return present;
  }
  if (state->table.count >= TABLE_LIMIT) lookup_reset(state);
  if (table_put(&state->table, &p->key, entry)) {
    lookup_release(entry);
    PyErr_NoMemory();
    return NULL;
  }
  return entry;
}

answer *lookup(launcher_state *state, const problem *p) {
  answer *entry = table_find(&state->table, &p->key);
  return entry ? entry : resolve(state, p);
}
