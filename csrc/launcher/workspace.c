#include "workspace.h"

#include <stdlib.h>

enum {
  ALIGN = 1024,
  SLAB_BYTES = 4 << 20,       // counters for captures, of one device
  SLAB_LOW = SLAB_BYTES / 2,  // below it an eager call makes the next slab
  MAX_STREAMS = 256,          // with a buffer; streams that come and go must not fill the device
};

// The buffer of a stream: counters, then partial sums.
typedef struct {
  size_t counters, bytes;  // capacity: counters, bytes of partial sums
  scratch memory;
  PyObject *owner;
} buffer;

static size_t round_up(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// What `function` of hgemm_packs.workspace answers: an address, and its owner in `owner`.
static char *ask(PyObject *function, const char *format, int device, size_t zeroed, size_t bytes,
                 int everywhere, PyObject **owner) {
  unsigned long long address = 0;
  PyObject *found = PyObject_CallFunction(function, format, device, (Py_ssize_t)bytes,
                                          (Py_ssize_t)zeroed, everywhere);
  if (found && found != Py_None && PyArg_ParseTuple(found, "KO", &address, owner))
    Py_INCREF(*owner);
  Py_XDECREF(found);
  PyErr_Clear();
  return (char *)(uintptr_t)address;
}

// torch's memory outside any capture, of which the first `zeroed` bytes are zero: for the current
// stream, or for all of them.
static char *keep(const launcher_state *state, int device, size_t zeroed, size_t bytes,
                  int everywhere, PyObject **owner) {
  return ask(state->torch.keep, "inni", device, zeroed, bytes, everywhere, owner);
}

void workspace_prepare(launcher_state *state, int device) {
  slab *mine = &state->slabs[device];
  if (mine->left >= SLAB_LOW || mine->refused) return;
  PyObject *owner;
  char *start = keep(state, device, SLAB_BYTES, SLAB_BYTES, 1, &owner);
  mine->refused = !start;
  // The owner is never released: graphs use what was handed out for as long as they live.
  if (start) mine->next = start, mine->left = SLAB_BYTES;
}

static size_t larger(size_t needed, size_t present) {
  return needed > present + present / 2 ? needed : present + present / 2;
}

static workspace_found grow(launcher_state *state, int device, const problem_key *key,
                            size_t counters, size_t bytes) {
  const buffer *old = table_find(&state->buffers, key);
  // Not for good: the problem is other streams' as well.
  if (!old && state->buffers.count >= MAX_STREAMS) return WORKSPACE_NONE;
  if (old) counters = larger(counters, old->counters), bytes = larger(bytes, old->bytes);
  const size_t head = round_up(counters * sizeof(uint32_t), ALIGN);
  PyObject *owner;
  char *start = keep(state, device, head, head + bytes, 0, &owner);
  if (!start) return WORKSPACE_NO_MEMORY;
  // Python has run: another thread may have made or grown the buffer of this stream meanwhile.
  buffer *mine = table_find(&state->buffers, key);
  if (!mine && (mine = calloc(1, sizeof *mine)) && table_put(&state->buffers, key, mine)) {
    free(mine);
    mine = NULL;
  }
  if (!mine || (mine->counters >= counters && mine->bytes >= bytes)) {
    Py_DECREF(owner);
    return mine ? WORKSPACE_READY : WORKSPACE_NO_MEMORY;
  }
  // Who still launches with the old memory holds its owner; torch hands it out again in the order
  // of the stream that it was allocated on, which is this one.
  PyObject *before = mine->owner;
  *mine = (buffer){head / sizeof(uint32_t), bytes, {start, start + head}, owner};
  Py_XDECREF(before);
  return WORKSPACE_READY;
}

static workspace_found take_kept(launcher_state *state, const plan *run, uint64_t stream,
                                 workspace *result) {
  const size_t counters = plan_ctas(run), bytes = counters * run->workspace_bytes;
  const problem_key key = {(uint32_t)stream, (uint32_t)(stream >> 32), (uint32_t)run->device, 0};
  for (;;) {
    const buffer *mine = table_find(&state->buffers, &key);
    if (mine && mine->counters >= counters && mine->bytes >= bytes) {
      result->memory = mine->memory;
      result->owner = mine->owner;
      Py_INCREF(result->owner);
      return WORKSPACE_READY;
    }
    const workspace_found grown = grow(state, run->device, &key, counters, bytes);
    if (grown != WORKSPACE_READY) return grown;
  }
}

static workspace_found take_captured(launcher_state *state, const plan *run, uint64_t stream,
                                     uint64_t capture, workspace *result) {
  slab *mine = &state->slabs[run->device];
  const size_t ctas = plan_ctas(run), bytes = round_up(ctas * sizeof(uint32_t), 256);
  if (mine->capture != capture || mine->stream != stream || mine->region_bytes < bytes) {
    if (mine->left < bytes) return WORKSPACE_NONE;
    mine->capture = capture, mine->stream = stream;
    mine->region = mine->next, mine->region_bytes = bytes;
    mine->next += bytes, mine->left -= bytes;
  }
  result->memory.counters = mine->region;
  result->memory.partials = ask(state->torch.borrow, "in", run->device, 0,
                                ctas * run->workspace_bytes, 0, &result->owner);
  return result->memory.partials ? WORKSPACE_READY : WORKSPACE_NONE;
}

workspace_found workspace_take(launcher_state *state, const plan *run, cu_stream stream,
                               workspace *result) {
  const cu_driver *driver = &state->driver;
  int pushed, status = CU_CAPTURE_NONE;
  uint64_t capture = 0;
  unsigned long long id = 0;
  *result = (workspace){0};
  // The default streams are those of the current context.
  cu_result code = device_enter(driver, run->context, &pushed);
  if (code == CU_OK) {
    code = driver->stream_capture(stream, &status, &capture, NULL, NULL, NULL);
    // Not the handle: a stream that is gone and a new one may have the same.
    if (code == CU_OK) code = driver->stream_id(stream, &id);
    device_leave(driver, pushed);
  }
  if (code != CU_OK) return WORKSPACE_NONE;
  if (status != CU_CAPTURE_NONE) return take_captured(state, run, id, capture, result);
  workspace_prepare(state, run->device);
  return take_kept(state, run, id, result);
}

PyObject *workspace_relaxed(PyObject *module, PyObject *function) {
  const launcher_state *state = state_of(module);
  int mode = CU_CAPTURE_RELAXED;
  state->driver.capture_mode(&mode);
  PyObject *result = PyObject_CallObject(function, NULL);
  state->driver.capture_mode(&mode);
  return result;
}
