// Memory of one device for launches under capture: regions that graphs own and give back. Nothing
// here knows Python or torch. Guarded by the GIL, but for the driver's word that a graph is gone.
#ifndef HGP_SLAB_H
#define HGP_SLAB_H

#include "cuda/driver.h"

typedef struct slab slab;

// An empty slab, or NULL when out of memory. It is never freed: graphs may outlive the module.
slab *slab_new(void);

// Takes over memory, for good. -1 when out of memory.
int slab_add(slab *mine, char *start, size_t bytes);

// Whether so many bytes belong to no graph.
int slab_has(slab *mine, size_t bytes);

// `bytes` for launches that the capture of id `capture` into `graph` records on one stream: what it
// was given before, where that is enough. NULL when there is no such room.
char *slab_take(slab *mine, const cu_driver *driver, uint64_t capture, cu_stream stream,
                void *graph, size_t bytes);

#endif
