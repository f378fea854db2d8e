// What a device's packs have no row for, known without asking Python: a stream of sizes that never
// come again must cost next to nothing, while a row serves from its first call.
#ifndef HGP_UNMEASURED_H
#define HGP_UNMEASURED_H

#include "problem.h"

// know_rows(device, lines, start, end): `lines` from `start` to `end` are the rows of a pack that
// serves this device, one a line. May be called for several packs; where a line cannot be read,
// Python is asked about every problem, as before the first call.
PyObject *unmeasured_know_rows(PyObject *module, PyObject *args);

// Whether it is known that no pack has a row of the size and kind of `p`.
int unmeasured_is_known(const launcher_state *state, const problem *p);

// Whether torch is to run `p`, which is known to have no row, without a decision: after so many
// decisions a problem is decided when it comes again.
int unmeasured_waits(launcher_state *state, const problem *p);

// Forgets all.
void unmeasured_reset(launcher_state *state);

#endif
