// What the launcher remembers: problem -> what to do about it. Open addressing over 36-byte keys;
// the answers come from Python, once per problem, and live until the table is reset.
#ifndef HGP_TABLE_H
#define HGP_TABLE_H

#include <stdint.h>

typedef struct {
  uint32_t m, n, k;
  uint32_t tag;      // device, layout, dtype, packed, alignments, epilogue: see problem.c
  uint32_t lead[2];  // leading strides of A and B where one is not packed, for a plan binds them
  uint32_t batches;  // 0 for one product
  uint32_t step[2];  // from one A or B of a batch to the next, where lead is said, too
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

// Problems of a generation. Where a generation is full, the one before it is forgotten: shapes that
// change at every call must not grow the table for ever. Two of 32768 slots of 48 bytes hold every
// layer and batch size of many models.
enum { TABLE_LIMIT = 16384 };

void *table_find(const table *t, const problem_key *key);

// The slot of a key that is in the table, or NULL.
table_slot *table_slot_of(table *t, const problem_key *key);

// Stores `value` under a key that is not in the table; 0, or -1 when out of memory.
int table_put(table *t, const problem_key *key, void *value);

#endif
