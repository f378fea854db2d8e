#define PY_SSIZE_T_CLEAN
#include "tensor.h"

#include <Python.h>

// Folds dimensions 0..count-1 into rows of one stride, as torch.matmul does for `x @ w`.
static int fold(const dl_tensor *view, int count, matrix *result) {
  result->rows = 1;
  result->row_stride = 0;
  for (int i = count - 1; i >= 0; i--) {
    const int64_t size = view->shape[i];
    result->leading[i] = size;
    if (size == 1) continue;
    if (result->rows == 1)
      result->row_stride = view->strides[i];
    else if (view->strides[i] != result->row_stride * result->rows)
      return 0;
    if (__builtin_mul_overflow(result->rows, size, &result->rows)) return 0;
  }
  return 1;
}

matrix_kind matrix_view(const dl_exchange *exchange, void *tensor, matrix *result) {
  dl_tensor view;
  if (exchange->view(tensor, &view)) {
    PyErr_Clear();
    return NOT_VIEWABLE;
  }
  // Every field is copied: the view borrows from the tensor, and Python may run before the launch.
  const int count = view.ndim - 1;
  result->data = (char *)view.data + view.byte_offset;
  result->device_type = view.device_type;
  result->device = view.device_id;
  result->type_code = view.type_code;
  result->type_bits = view.type_bits;
  if (count < 1 || count > MAX_LEADING) return NOT_A_MATRIX;
  result->leading_count = count;
  result->cols = view.shape[count];
  result->col_stride = view.strides[count];
  if (count == 1) {
    result->rows = result->leading[0] = view.shape[0];
    result->row_stride = view.strides[0];
    return MATRIX;
  }
  return fold(&view, count, result) ? MATRIX : NOT_FOLDABLE;
}

int matrix_overlap(const matrix *x, const matrix *y) {
  const char *x_end = x->data + x->rows * x->cols * 2, *y_end = y->data + y->rows * y->cols * 2;
  return x->data < y_end && y->data < x_end;
}
