// Memory for kernels whose CTAs add up partial sums through global memory.
//
// Eager calls: one buffer per device and stream that grows, kept for good. Launches of one stream
// are ordered, so they can share it. Calls under capture must share it with nobody who may run at
// another time: partial sums come from torch's allocator inside the capture, like any temporary of
// the graph, and counters from a slab per device, zeroed before and handed out once. Launches that
// one capture records on one stream are ordered as well and share their counters.
#ifndef HGP_WORKSPACE_H
#define HGP_WORKSPACE_H

#include "state.h"

typedef struct {
  scratch memory;
  PyObject *owner;  // released when the launch is queued
} workspace;

typedef enum {
  WORKSPACE_READY,
  WORKSPACE_NONE,      // none for this call: an unprepared capture, or a stream too many
  WORKSPACE_NO_MEMORY  // nor for the next one
} workspace_found;

// Finds memory for one launch of `run`, which has a workspace, on `stream`, torch's current one.
// May run Python; no exception is left set.
workspace_found workspace_take(launcher_state *state, const plan *run, cu_stream stream,
                               workspace *result);

// Makes sure that there are counters for captures on a device, as far as memory allows. Not to be
// called while the current stream is being captured.
void workspace_prepare(launcher_state *state, int device);

// relaxed(function): calls it while captures of other threads do not restrict this one.
PyObject *workspace_relaxed(PyObject *module, PyObject *function);

#endif
