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

// The leading stride of `m` stored row by row, or column by column when `transposed`; 0 when it is
// not stored that way.
int64_t matrix_lead(const matrix *m, int transposed);

// The smallest leading stride that the matrix could have in that storage.
int64_t matrix_packed(const matrix *m, int transposed);

// Whether the bytes of a packed `x` and a packed `y` overlap.
int matrix_overlap(const matrix *x, const matrix *y);

#endif
