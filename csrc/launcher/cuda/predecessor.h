// What a launch follows. Launched dependent, a kernel gains behind another kernel of ours, which
// lets it start early, and loses behind a foreign one: between torch's elementwise kernels 60
// problems ran at 1.18 of torch dependent, 1.21 plainly (benchmarks/results/chained.json).
#ifndef HGP_PREDECESSOR_H
#define HGP_PREDECESSOR_H

#include "state.h"

// Remembers a kernel as ours; 0, or -1 when out of memory. Only for one that stays loaded, as all
// do that kernel_load accepts: nobody else's can have its handle then.
int predecessor_add(launcher_state *state, const loaded_kernel *kernel);

// Whether the next launch of `run` on `stream`, with these addresses of A, B and C, may be a
// dependent one: it waits for nothing but a kernel of ours, of the same device, and if `run`
// reads A and B ahead, neither is written by that kernel nor by one that may still run beside it.
// Only a capture tells: an eager stream does not say what it was given last. `is_current`: whether
// the context of `run` is. `eager`: set to whether the stream is certainly under no capture.
int may_depend(const launcher_state *state, const plan *run, void *const addresses[3],
               cu_stream stream, int is_current, int *eager);

#endif
