// The half of a call that launches: which of an answer's kernels, its workspace, the launch.
#ifndef HGP_RUN_H
#define HGP_RUN_H

#include "lookup.h"

// Launches the answer to `p`, which the caller holds, with p->c for its output. REASON_COUNT when
// that is done, else why it is not; an exception is left set when something failed that torch
// would fail in too.
reason run_kernel(launcher_state *state, const problem *p, const answer *found);

#endif
