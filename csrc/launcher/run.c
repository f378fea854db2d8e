#include "run.h"

#include "cuda/predecessor.h"
#include "cuda/workspace.h"

// Memory for a launch of `run`, if it wants any.
static workspace_found find_workspace(launcher_state *state, const plan *run, cu_stream stream,
                                      workspace *space) {
  return run->workspace_bytes ? workspace_take(state, run, stream, space) : WORKSPACE_READY;
}

// Which plan this launch is of, in `run`, and its workspace. A dependent one that finds no memory
// leaves the launch to the problem's own; eager calls see to it that captures find some.
static workspace_found choose_plan(launcher_state *state, const answer *found,
                                   void *const addresses[ADDRESSES], cu_stream stream,
                                   int is_current, const plan **run, workspace *space) {
  const plan *dependent = &found->dependent;
  int eager = 0;
  // No capture takes the legacy stream, on which most eager calls are: it is only asked where
  // memory for captures may have to be made, which one elsewhere can forbid.
  const int asked = dependent->pdl && (stream || dependent->workspace_bytes);
  *run = dependent;
  if (asked && may_depend(state, dependent, addresses, stream, is_current, &eager)) {
    const workspace_found memory = find_workspace(state, dependent, stream, space);
    if (memory != WORKSPACE_NONE) return memory;
  }
  if (eager && dependent->workspace_bytes && workspace_prepare(state, dependent->device))
    return WORKSPACE_FAILED;
  *run = &found->own;
  return find_workspace(state, *run, stream, space);
}

// The launch itself, with the GIL released: a full launch queue blocks, and what empties it may be
// a host callback that needs the GIL.
static cu_result launch(const cu_driver *driver, const plan *run, void *const addresses[ADDRESSES],
                        int32_t lead, void *parts, cu_stream stream, int is_current) {
  PyThreadState *thread = PyEval_SaveThread();
  cu_result result = is_current ? CU_OK : driver->context_push(run->context);
  if (result == CU_OK) {
    result = plan_run(driver, run, addresses, lead, parts, stream);
    device_leave(driver, !is_current);
  }
  PyEval_RestoreThread(thread);
  return result;
}

reason run_kernel(launcher_state *state, const problem *p, const answer *found) {
  const cu_driver *driver = &state->driver;
  const plan *run = &found->own;  // of one context and device with the other
  void *stream;
  // Torch's "current device" need not be the driver's, as in a process that has only used its
  // second GPU.
  int is_current = device_is_current(driver, run->context);
  void *const addresses[ADDRESSES] = {p->a.data, p->b.data, p->c.data, p->addend};
  if (state->exchange->current_stream(state->device_type, run->device, &stream))
    return REASON_LAUNCH_FAILED;
  const int predicted = found->predicted;
  workspace space = {0};
  const workspace_found memory =
      choose_plan(state, found, addresses, stream, is_current, &run, &space);
  if (memory != WORKSPACE_READY) return REASON_WORKSPACE;
  if (found->dependent.workspace_bytes || run->workspace_bytes)  // memory may have been made
    is_current = device_is_current(driver, run->context);
  const cu_result code =
      launch(driver, run, addresses, p->shape.ld[2], space.parts, stream, is_current);
  Py_XDECREF(space.owner);
  if (code != CU_OK) {
    // This kernel is of no use any more, but where a capture is to blame.
    if (code < CU_CAPTURE_FIRST_ERROR || code > CU_CAPTURE_LAST_ERROR)
      lookup_give_up(state, &p->key, REASON_LAUNCH_FAILED);
    return REASON_LAUNCH_FAILED;
  }
  state->hits++;
  state->predicted += (uint64_t)predicted;
  state->launches++;
  return REASON_COUNT;
}
