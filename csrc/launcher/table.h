// What the launcher remembers: problem -> what to do about it. Open addressing over 16-byte keys;
// the answers come from Python, once per problem, and live until the table is reset.
#ifndef HGP_TABLE_H
#define HGP_TABLE_H

#include <stdint.h>

typedef struct {
  uint32_t m, n, k;
  uint32_t tag;  // device, layout, dtype, packed, alignment, epilogue: see problem.c
} problem_key;

// In the tag of a call in the batch-invariant mode, whose answers are others: see problem.c.
#define INVARIANT_KEY (UINT32_C(1) << 31)

typedef struct {
  problem_key key;
  void *value;  // NULL: the slot is free
} table_slot;

typedef struct {
  table_slot *slots;
  uint32_t capacity;  // a power of two, or 0
  uint32_t count;
} table;

// Problems beyond this many make the table start afresh: shapes that change at every call must not
// grow it for ever. 65536 slots of 24 bytes hold every layer and batch size of many models.
enum { TABLE_LIMIT = 32768 };

void *table_find(const table *t, const problem_key *key);

// The slot of a key that is in the table, or NULL.
table_slot *table_slot_of(table *t, const problem_key *key);

// Stores `value` under a key that is not in the table; 0, or -1 when out of memory.
int table_put(table *t, const problem_key *key, void *value);

#endif
