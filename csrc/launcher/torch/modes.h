// Whether torch is in a state in which its matmul does more than multiply: function and dispatch
// modes, autocast, tracing, forward-mode gradients.
//
// Torch answers each of these by a Python function of its own (probes). Asking them all costs
// 0.25 us, so a shortcut asks three plain C functions of the loaded torch libraries instead, where
// they are there to be found: the thread's dispatch key set is the same as in a fresh thread, and
// no function mode is on. The shortcut can only say "nothing special"; anything else is left to
// the probes.
#ifndef HGP_MODES_H
#define HGP_MODES_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

// A function of no or one argument that answers `quiet` unless torch is in some special state.
// `direct` is its C function, where calling that skips Python's argument handling.
typedef struct {
  PyObject *function, *quiet, *argument, *self;
  PyCFunction direct;
} probe;

enum { MAX_PROBES = 8, KEY_SETS = 2 };

// What a thread's dispatch keys are: two words, included and excluded keys.
typedef struct {
  uint64_t words[2];
} key_set;

typedef struct {
  probe probes[MAX_PROBES];
  int count;
  int covered;  // the first so many probes need not be asked where the shortcut says quiet
  probe grad_enabled;
  void *c10;  // NULL: no shortcut
  int64_t (*function_modes)(void);
  bool (*native_grad_enabled)(void);
  bool (*native_inference)(void);
  key_set quiet[KEY_SETS];
  int quiet_count;
} torch_modes;

// Binds the probes: `tuples` of (function, quiet answer[, argument]). -1 with an exception set.
int modes_bind(torch_modes *modes, PyObject *tuples, int covered, PyObject *grad_enabled);

// Takes this thread's key set as one in which nothing special is on; the caller vouches for that.
void modes_remember(torch_modes *modes);

// 1 when nothing special is on, 0 when something is, -1 with an exception set.
int modes_quiet(const torch_modes *modes);

// 1 when no function mode is on, as far as the shortcut can tell.
int modes_unwatched(const torch_modes *modes);

// Excludes dispatch keys in this thread, as torch does below its autograd; returns what was
// excluded for modes_restore. Only where `c10` is there.
uint64_t modes_exclude(const torch_modes *modes, uint64_t dispatch_keys);
void modes_restore(const torch_modes *modes, uint64_t excluded);

// 1 when gradients are being recorded, 0 when not, -1 with an exception set.
int modes_grad_enabled(const torch_modes *modes);

// 1 when they are, as far as the shortcut can tell.
int modes_records(const torch_modes *modes);

// 1 in inference mode, as far as the shortcut can tell.
int modes_inference(const torch_modes *modes);

#endif
