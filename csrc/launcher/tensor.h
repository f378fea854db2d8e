// Tensors as matrices. Reads torch tensors through the DLPack exchange table, copies out what a
// call needs, and decides how a matrix lies in memory, including the dimensions of size 1 whose
// strides mean nothing.
#ifndef HGP_TENSOR_H
#define HGP_TENSOR_H

#include "dlpack.h"

enum { MAX_LEADING = 6 };  // leading dimensions of `x @ w` that are folded into rows

typedef struct {
  char *data;
  int64_t rows, cols;
  int64_t row_stride, col_stride;  // elements
  int32_t device_type, device;
  uint8_t type_code, type_bits;
  int leading_count;  // 1 for a plain matrix
  int64_t leading[MAX_LEADING];
} matrix;

typedef enum { MATRIX, NOT_VIEWABLE, NOT_A_MATRIX, NOT_FOLDABLE } matrix_kind;

// Views `tensor` (a torch.Tensor, checked by the caller) as a matrix; leading dimensions are folded
// into rows where their strides allow it. No Python exception is left set.
matrix_kind matrix_view(const dl_exchange *exchange, void *tensor, matrix *result);

// The smallest leading stride that the matrix could have, stored row by row or, when `transposed`,
// column by column.
static inline int64_t matrix_packed(const matrix *m, int transposed) {
  return transposed ? m->rows : m->cols;
}

// Its leading stride in that storage; 0 when it is not stored that way.
static inline int64_t matrix_lead(const matrix *m, int transposed) {
  const int64_t inner = transposed ? m->rows : m->cols, outer = transposed ? m->cols : m->rows;
  const int64_t step = transposed ? m->row_stride : m->col_stride;
  const int64_t lead = transposed ? m->col_stride : m->row_stride;
  if (inner != 1 && step != 1) return 0;
  if (outer == 1) return inner;
  return lead >= inner ? lead : 0;
}

// Whether the bytes of a packed `x` and a packed `y` overlap.
int matrix_overlap(const matrix *x, const matrix *y);

#endif
