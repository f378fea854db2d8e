// Memory for kernels whose CTAs add up partial sums through global memory. All of its words are all
// ones before a launch, which the kernel wants, and after it, which the kernel sees to: nothing is
// ever cleared again.
//
// Eager calls: one buffer per device and stream that grows, kept for good. Launches of one stream
// are ordered, so they can share it. Calls under capture must share it with nobody who may run at
// another time: each capture takes regions of a slab, one for each of its streams, whose launches
// are ordered as well. Its graph owns them, and whatever is made of that graph; when the last of
// these is gone they can be taken again.
//
// Under capture a stream is known by its handle, for the driver does not tell its id then. Two of
// one capture can have the same only where the first is destroyed before that capture ends, which
// torch never does with a stream of its own (its cuBLAS workspaces go by handles as well).
#ifndef HGP_WORKSPACE_H
#define HGP_WORKSPACE_H

#include "state.h"

typedef struct {
  void *parts;
  PyObject *owner;  // of the memory, or NULL; released when the launch is queued
} workspace;

typedef enum {
  WORKSPACE_READY,
  WORKSPACE_NONE,   // none for this call: an unprepared capture, no memory, or a stream too many
  WORKSPACE_FAILED  // an exception that is none of memory is set, KeyboardInterrupt for one
} workspace_found;

// Finds memory for one launch of `run`, which has a workspace, on `stream`, torch's current one.
// May run Python.
workspace_found workspace_take(launcher_state *state, const plan *run, cu_stream stream,
                               workspace *result);

// Makes sure that there is memory for captures on a device, as far as there is any. Not to be
// called while the current stream is being captured. -1 with an exception set, as above.
int workspace_prepare(launcher_state *state, int device);

// relaxed(function): calls it while captures of other threads do not restrict this one.
PyObject *workspace_relaxed(PyObject *module, PyObject *function);

#endif
