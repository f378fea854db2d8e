#include "table.h"

#include <stdlib.h>

static uint32_t hash(const problem_key *key) {
  // Two odd 64-bit multipliers (fractions of sqrt 5 and sqrt 2; of sqrt 3 for strides, of sqrt 7
  // for batches); the high bits mix every input bit.
  uint64_t low = ((uint64_t)key->m << 32 | key->n) * UINT64_C(0x9E3779B97F4A7C15);
  uint64_t high = ((uint64_t)key->k << 32 | key->tag) * UINT64_C(0xB504F333F9DE6485);
  if (key->lead[0])
    high ^= ((uint64_t)key->lead[0] << 32 | key->lead[1]) * UINT64_C(0xBB67AE8584CAA73B);
  if (key->batches) {
    const uint64_t steps = (uint64_t)key->step[0] << 32 | key->step[1];
    low += (steps ^ key->batches) * UINT64_C(0xA54FF53A5F1D36F1);
  }
  uint64_t mixed = (low ^ (high >> 29)) + high;
  return (uint32_t)((mixed ^ (mixed >> 32)) * UINT64_C(0x9E3779B97F4A7C15) >> 32);
}

static int same(const problem_key *x, const problem_key *y) {
  return x->m == y->m && x->n == y->n && x->k == y->k && x->tag == y->tag &&
         x->lead[0] == y->lead[0] && x->lead[1] == y->lead[1] && x->batches == y->batches &&
         x->step[0] == y->step[0] && x->step[1] == y->step[1];
}

static table_slot *locate(table_slot *slots, uint32_t capacity, const problem_key *key) {
  uint32_t i = hash(key) & (capacity - 1);
  while (slots[i].value && !same(&slots[i].key, key))
    i = (i + 1) & (capacity - 1);
  return &slots[i];
}

void *table_find(const table *t, const problem_key *key) {
  return t->capacity ? locate(t->slots, t->capacity, key)->value : NULL;
}

table_slot *table_slot_of(table *t, const problem_key *key) {
  table_slot *slot = t->capacity ? locate(t->slots, t->capacity, key) : NULL;
  return slot && slot->value ? slot : NULL;
}

static int grow(table *t) {
  const uint32_t capacity = t->capacity ? t->capacity * 2 : 256;
  table_slot *slots = calloc(capacity, sizeof *slots);
  if (!slots) return -1;
  for (uint32_t i = 0; i < t->capacity; i++)
    if (t->slots[i].value) *locate(slots, capacity, &t->slots[i].key) = t->slots[i];
  free(t->slots);
  t->slots = slots;
  t->capacity = capacity;
  return 0;
}

int table_put(table *t, const problem_key *key, void *value) {
  if (2 * (t->count + 1) > t->capacity && grow(t)) return -1;
  *locate(t->slots, t->capacity, key) = (table_slot){*key, value};
  t->count++;
  return 0;
}
