#include "cuda/slab.h"

#include <stdatomic.h>
#include <stdlib.h>

enum { UNIT = 256 << 10 };  // bytes; regions are multiples of it

typedef struct region {
  struct region *next;
  char *start;
  size_t bytes;
  uint64_t capture;  // driver's id, where a graph owns it
  cu_stream stream;
  atomic_int gone;  // the graph is
} region;

struct slab {
  region *free;   // by address; none of them touch
  region *owned;  // by graphs, as far as anybody has looked
  size_t left;    // bytes of `free`
};

slab *slab_new(void) {
  return calloc(1, sizeof(slab));
}

static void put_free(slab *mine, region *made) {
  region **at = &mine->free, *before = NULL;
  mine->left += made->bytes;
  for (; *at && (*at)->start < made->start; at = &(*at)->next)
    before = *at;
  made->next = *at;
  *at = made;
  region *after = made->next;
  if (after && made->start + made->bytes == after->start) {
    made->bytes += after->bytes, made->next = after->next;
    free(after);
  }
  if (before && before->start + before->bytes == made->start) {
    before->bytes += made->bytes, before->next = made->next;
    free(made);
  }
}

int slab_add(slab *mine, char *start, size_t bytes) {
  region *made = calloc(1, sizeof *made);
  if (!made) return -1;
  made->start = start, made->bytes = bytes;
  put_free(mine, made);
  return 0;
}

// Takes back what graphs have owned that are gone.
static void collect(slab *mine) {
  for (region **at = &mine->owned; *at;) {
    region *each = *at;
    if (!atomic_load_explicit(&each->gone, memory_order_acquire)) {
      at = &each->next;
      continue;
    }
    *at = each->next;
    put_free(mine, each);
  }
}

int slab_has(slab *mine, size_t bytes) {
  if (mine->left < bytes) collect(mine);
  return mine->left >= bytes;
}

// The last graph that owned a region is gone, and its launches have ended. The driver says so on a
// thread of its own, which may call nothing of CUDA and must not wait.
static void let_go(void *owned) {
  atomic_store_explicit(&((region *)owned)->gone, 1, memory_order_release);
}

// Makes the graph, and what is made of it, owner of a region. Where that fails nobody will ever
// say that the region is free, and it stays with the graph.
static void hand_over(const cu_driver *driver, void *graph, region *mine) {
  void *object;
  if (driver->object_create(&object, mine, let_go, 1, CU_OBJECT_NO_SYNC) == CU_OK)
    driver->graph_retain(graph, object, 1, CU_OBJECT_MOVE);
}

// The first `bytes` of a free region, as one that is in no list.
static region *cut(slab *mine, size_t bytes) {
  region **at = &mine->free;
  while (*at && (*at)->bytes < bytes)
    at = &(*at)->next;
  region *found = *at, *rest = NULL;
  if (!found) return NULL;
  if (found->bytes > bytes) {
    rest = calloc(1, sizeof *rest);
    if (!rest) return NULL;
    *rest = (region){.next = found->next, .start = found->start + bytes};
    rest->bytes = found->bytes - bytes;
  }
  *at = rest ? rest : found->next;
  found->bytes = bytes;
  mine->left -= bytes;
  return found;
}

char *slab_take(slab *mine, const cu_driver *driver, uint64_t capture, cu_stream stream,
                void *graph, size_t bytes) {
  collect(mine);
  for (region *each = mine->owned; each; each = each->next)
    if (each->capture == capture && each->stream == stream && each->bytes >= bytes)
      return each->start;
  region *found = cut(mine, (bytes + UNIT - 1) / UNIT * UNIT);
  if (!found) return NULL;
  found->capture = capture, found->stream = stream;
  atomic_store_explicit(&found->gone, 0, memory_order_relaxed);
  found->next = mine->owned;
  mine->owned = found;
  hand_over(driver, graph, found);
  return found->start;
}
