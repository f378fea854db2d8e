// What a device's packs have no row for, known without asking Python: a stream of sizes that never
// come again must cost next to nothing, while a row serves from its first call.
#ifndef HGP_UNMEASURED_H
#define HGP_UNMEASURED_H

#include "cuda/kernel_type.h"
#include "problem.h"

// know_rows(device, lines, start, end): `lines` from `start` to `end` are the rows of a pack that
// serves this device, one a line. May be called for several packs; where a line cannot be read,
// Python is asked about every problem, as before the first call.
PyObject *unmeasured_know_rows(PyObject *module, PyObject *args);

// know_predictor(device, predictor): decide problems of this device without a row as Python would,
// by the predictor, or where it is None never for a kernel. Of a device whose rows are not known
// nothing is decided.
PyObject *unmeasured_know_predictor(PyObject *module, PyObject *args);

// forget_predictors(): ask Python about every problem that is to be decided, until it is said again
// what to decide by.
PyObject *unmeasured_forget_predictors(PyObject *module, PyObject *unused);

// Whether `p`, which is known to have no row, can be decided without Python: then its kernel is in
// `kernel`, or NULL where torch runs it. Python has to load the kernel first.
int unmeasured_decide(const launcher_state *state, const problem *p, const loaded_kernel **kernel);

// Keeps the kernel that Python has loaded for `p`, for other problems that the predictor would give
// to it.
void unmeasured_keep(launcher_state *state, const problem *p, PyObject *kernel);

// What is known of a problem that the table has not: a pack may have a row of its size and kind; or
// none has, and torch is to run it without a decision, for after so many decisions a problem is
// decided when it comes again, or, also where it is not to `wait`, it is to be decided.
typedef enum { MAYBE_MEASURED, WAITING, UNDECIDED } unmeasured_state;
unmeasured_state unmeasured_find(launcher_state *state, const problem *p, int wait);

// Forgets all.
void unmeasured_reset(launcher_state *state);

#endif
