#include "cuda/workspace.h"

#include <stdlib.h>

enum {
  SLAB_BYTES = 32 << 20,      // for captures, of one device
  SLAB_LOW = SLAB_BYTES / 2,  // below it an eager call makes the next slab
  MAX_STREAMS = 256,          // with a buffer; streams that come and go must not fill the device
  MIN_PATIENCE = 64,          // calls
  MAX_PATIENCE = 1 << 20,
};

// The buffer of a stream.
typedef struct {
  void *parts;
  size_t bytes;
  PyObject *owner;
} buffer;

// torch's memory outside any capture, all ones for the current stream, or for all of them; its
// owner in `owner`. NULL when there is none; an exception is left set only where it is not torch's.
static char *keep(const launcher_state *state, patience *wait, int device, size_t bytes,
                  int everywhere, PyObject **owner) {
  unsigned long long address = 0;
  if (wait->left) {
    wait->left--;
    return NULL;
  }
  PyObject *found =
      PyObject_CallFunction(state->torch.keep, "ini", device, (Py_ssize_t)bytes, everywhere);
  if (found && found != Py_None && PyArg_ParseTuple(found, "KO", &address, owner))
    Py_INCREF(*owner);
  Py_XDECREF(found);
  if (PyErr_Occurred()) {
    if (!PyErr_ExceptionMatches(PyExc_Exception)) return NULL;
    PyErr_Clear();
  }
  wait->next = address ? 0 : wait->next ? 2 * wait->next : MIN_PATIENCE;
  if (wait->next > MAX_PATIENCE) wait->next = MAX_PATIENCE;
  wait->left = wait->next;
  return (char *)(uintptr_t)address;
}

int workspace_prepare(launcher_state *state, int device) {
  workspaces *mine = &state->workspaces[device];
  if (!mine->slab) mine->slab = slab_new();
  if (!mine->slab || slab_has(mine->slab, SLAB_LOW)) return 0;
  PyObject *owner;  // released only where the slab cannot take the memory
  char *start = keep(state, &mine->captures, device, SLAB_BYTES, 1, &owner);
  if (start && slab_add(mine->slab, start, SLAB_BYTES)) Py_DECREF(owner);
  return PyErr_Occurred() ? -1 : 0;
}

static workspace_found grow(launcher_state *state, int device, const problem_key *key,
                            size_t bytes) {
  const buffer *old = table_find(&state->buffers, key);
  // Not for good: the problem is other streams' as well.
  if (!old && state->buffers.count >= MAX_STREAMS) return WORKSPACE_NONE;
  if (old && bytes < old->bytes + old->bytes / 2) bytes = old->bytes + old->bytes / 2;
  PyObject *owner;
  char *start = keep(state, &state->workspaces[device].eager, device, bytes, 0, &owner);
  if (!start) return PyErr_Occurred() ? WORKSPACE_FAILED : WORKSPACE_NONE;
  // Python has run: another thread may have made or grown the buffer of this stream meanwhile.
  buffer *mine = table_find(&state->buffers, key);
  if (!mine && (mine = calloc(1, sizeof *mine)) && table_put(&state->buffers, key, mine)) {
    free(mine);
    mine = NULL;
  }
  if (!mine || mine->bytes >= bytes) {
    Py_DECREF(owner);
    return mine ? WORKSPACE_READY : WORKSPACE_NONE;
  }
  // Who still launches with the old memory holds its owner; torch hands it out again in the order
  // of the stream that it was allocated on, which is this one.
  PyObject *before = mine->owner;
  *mine = (buffer){start, bytes, owner};
  Py_XDECREF(before);
  return WORKSPACE_READY;
}

static workspace_found take_kept(launcher_state *state, const plan *run, uint64_t stream,
                                 workspace *result) {
  const problem_key key = {
      (uint32_t)stream, (uint32_t)(stream >> 32), (uint32_t)run->device, 0, {0}};
  for (;;) {
    const buffer *mine = table_find(&state->buffers, &key);
    if (mine && mine->bytes >= run->workspace_bytes) {
      *result = (workspace){mine->parts, mine->owner};
      Py_INCREF(result->owner);
      return WORKSPACE_READY;
    }
    const workspace_found grown = grow(state, run->device, &key, run->workspace_bytes);
    if (grown != WORKSPACE_READY) return grown;
  }
}

workspace_found workspace_take(launcher_state *state, const plan *run, cu_stream stream,
                               workspace *result) {
  const cu_driver *driver = &state->driver;
  slab *slab = state->workspaces[run->device].slab;
  int pushed, status = CU_CAPTURE_NONE;
  uint64_t capture = 0;
  unsigned long long id = 0;
  void *graph = NULL;
  *result = (workspace){0};
  // The default streams are those of the current context.
  cu_result code = device_enter(driver, run->context, &pushed);
  if (code == CU_OK) {
    code = driver->stream_capture(stream, &status, &capture, &graph, NULL, NULL);
    if (code == CU_OK && status == CU_CAPTURE_ACTIVE && slab && stream != CU_STREAM_PER_THREAD)
      result->parts = slab_take(slab, driver, capture, stream, graph, run->workspace_bytes);
    // Not the handle: a stream that is gone and a new one may have the same. Asked for the id of a
    // stream under capture the driver ends the capture.
    if (code == CU_OK && status == CU_CAPTURE_NONE) code = driver->stream_id(stream, &id);
    device_leave(driver, pushed);
  }
  if (code != CU_OK) return WORKSPACE_NONE;
  if (status != CU_CAPTURE_NONE) return result->parts ? WORKSPACE_READY : WORKSPACE_NONE;
  if (workspace_prepare(state, run->device)) return WORKSPACE_FAILED;
  return take_kept(state, run, id, result);
}

PyObject *workspace_relaxed(PyObject *module, PyObject *function) {
  const launcher_state *state = state_of(module);
  int mode = CU_CAPTURE_RELAXED;
  if (!state->driver.capture_mode)
    return PyErr_Format(PyExc_RuntimeError, "relaxed: no driver is open");
  state->driver.capture_mode(&mode);
  PyObject *result = PyObject_CallObject(function, NULL);
  state->driver.capture_mode(&mode);
  return result;
}
