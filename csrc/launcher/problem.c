#include "problem.h"

#include <string.h>

int is_tensor(const launcher_state *state, PyObject *object) {
  PyObject *type = (PyObject *)Py_TYPE(object);
  return type == state->torch.tensor || type == state->torch.parameter;
}

reason problem_view(const launcher_state *state, void *tensor, matrix *result) {
  switch (tensor_view(&state->reader, tensor, 0, result)) {
    case MATRIX:
      return REASON_COUNT;
    case ELSEWHERE:
      return REASON_DEVICE;
    case NOT_VIEWABLE:
      return REASON_NO_VIEW;
    case NOT_A_MATRIX:
      return REASON_SHAPE;
    default:
      return REASON_LAYOUT;
  }
}

static reason view(const launcher_state *state, PyObject *object, matrix *result) {
  if (!is_tensor(state, object)) return REASON_TENSOR_TYPE;
  return problem_view(state, tensor_in(&state->reader, object), result);
}

static int is_half(const matrix *m) {
  return m->type == DL_FLOAT || m->type == DL_BFLOAT;
}

static int same_kind(const matrix *x, const matrix *y) {
  return x->device == y->device && x->type == y->type;
}

static int is_dim(int64_t size) {
  return size >= 1 && size <= INT32_MAX;
}

// How an operand is stored: row by row if it can be read so without a gap, else column by column,
// else in whichever of the two it is. A vector is both; the preference makes its layout unique.
static int settle(const matrix *m, int *transposed, int32_t *lead, int *packed) {
  int64_t found = matrix_lead(m, 0);
  *transposed = 0;
  if (found != m->cols) {
    const int64_t by_column = matrix_lead(m, 1);
    *transposed = by_column == m->rows || !found;
    if (*transposed) found = by_column;
  }
  if (!found || found > INT32_MAX) return 0;
  *packed &= found == matrix_packed(m, *transposed);
  *lead = (int32_t)found;
  return 1;
}

static void make_key(problem *p) {
  uintptr_t bits = 16 | (uintptr_t)p->a.data | (uintptr_t)p->b.data;
  for (int i = 0; i < 3; i++)
    bits |= (uintptr_t)p->shape.ld[i] * 2;
  p->align = (int)(bits & -bits);
  if (p->align < 2) p->align = 2;
  const uint32_t bf16 = p->a.type == DL_BFLOAT;
  p->key = (problem_key){(uint32_t)p->shape.m, (uint32_t)p->shape.n, (uint32_t)p->shape.k,
                         (uint32_t)p->a.device | (uint32_t)p->transposed[0] << 8 |
                             (uint32_t)p->transposed[1] << 9 | bf16 << 10 |
                             (uint32_t)p->packed << 11 | (uint32_t)p->align << 12};
}

// Rows are columns, and columns rows.
static void transpose(matrix *m) {
  const int64_t rows = m->rows, row_stride = m->row_stride;
  m->rows = m->leading[0] = m->cols, m->row_stride = m->col_stride;
  m->cols = rows, m->col_stride = row_stride;
}

reason problem_of_views(int linear, problem *p) {
  if (!same_kind(&p->a, &p->b)) return REASON_MISMATCH;
  if ((uint32_t)p->a.device >= MAX_DEVICES) return REASON_DEVICE;
  if (!is_half(&p->a)) return REASON_DTYPE;
  if (p->b.leading_count != 1) return REASON_SHAPE;
  if (linear) transpose(&p->b);
  if (p->a.cols != p->b.rows) return REASON_MISMATCH;
  if (!is_dim(p->a.rows) || !is_dim(p->a.cols) || !is_dim(p->b.cols)) return REASON_SHAPE;
  if (!p->a.data || !p->b.data) return REASON_NO_VIEW;
  p->shape.m = (int32_t)p->a.rows;
  p->shape.n = (int32_t)p->b.cols;
  p->shape.k = (int32_t)p->a.cols;
  p->packed = 1;
  if (!settle(&p->a, &p->transposed[0], &p->shape.ld[0], &p->packed) ||
      !settle(&p->b, &p->transposed[1], &p->shape.ld[1], &p->packed))
    return REASON_LAYOUT;
  p->shape.ld[2] = p->shape.n;
  p->bias = NULL;
  make_key(p);
  return REASON_COUNT;
}

reason problem_describe(const launcher_state *state, PyObject *a, PyObject *b, int linear,
                        problem *p) {
  const reason first = view(state, a, &p->a), second = view(state, b, &p->b);
  if ((first == REASON_COUNT && second == REASON_DEVICE) ||
      (first == REASON_DEVICE && second == REASON_COUNT))
    return REASON_MISMATCH;
  if (first != REASON_COUNT) return first;
  const reason why = second == REASON_COUNT ? problem_of_views(linear, p) : second;
  if (why == REASON_COUNT) p->key.tag |= state->invariant;
  return why;
}

reason problem_out(const launcher_state *state, PyObject *out, problem *p) {
  const reason why = view(state, out, &p->c);
  if (why != REASON_COUNT) return why == REASON_DEVICE ? REASON_MISMATCH : why;
  return problem_of_output(p);
}

reason problem_of_output(const problem *p) {
  const matrix *a = &p->a, *c = &p->c;
  if (!same_kind(a, c) || c->leading_count != a->leading_count || c->cols != p->b.cols ||
      memcmp(c->leading, a->leading, (size_t)a->leading_count * sizeof *a->leading))
    return REASON_MISMATCH;
  if (!c->data) return REASON_NO_VIEW;
  const int64_t lead = matrix_lead(c, 0);
  if (!lead) return REASON_OUT;
  if (lead != c->cols) return REASON_STRIDED;
  if ((uintptr_t)c->data % 16) return REASON_UNALIGNED;
  // torch decides what an output that shares memory with an input means.
  if (matrix_overlap(a, c) || matrix_overlap(&p->b, c)) return REASON_OUT;
  return REASON_COUNT;
}

// Whether it is a vector of N of the operands' type and device, viewed in `found`.
static int view_bias(const launcher_state *state, PyObject *bias, const problem *p, matrix *found) {
  *found = (matrix){.leading_count = -1};
  return matrix_view(&state->reader, bias, 0, found) == NOT_A_MATRIX && !found->leading_count &&
         found->cols == p->b.cols && same_kind(&p->a, found) && found->data;
}

reason problem_add_bias(const launcher_state *state, PyObject *bias, problem *p) {
  matrix found;
  if (!is_tensor(state, bias)) return REASON_TENSOR_TYPE;
  if (!view_bias(state, bias, p, &found) || (found.cols > 1 && found.col_stride != 1) ||
      (uintptr_t)found.data % 16)
    return REASON_BIAS;
  p->bias = found.data;
  p->key.tag |= UINT32_C(1) << 17;  // above the alignment
  return REASON_COUNT;
}

reason problem_bias(const launcher_state *state, PyObject *bias, const problem *p) {
  matrix found;
  if (!is_tensor(state, bias)) return REASON_TENSOR_TYPE;
  const int is_vector = view_bias(state, bias, p, &found);
  // With more leading dimensions, or rows or biases apart, torch adds it after the product.
  const int packed = p->packed && !p->transposed[0] && (found.cols == 1 || found.col_stride == 1);
  const int inside = p->a.leading_count == 1 || (p->a.leading_count == 2 && packed);
  return is_vector && inside ? REASON_COUNT : REASON_BIAS;
}

const char *problem_layout(const problem *p) {
  static const char *const NAMES[2][2] = {{"nn", "nt"}, {"tn", "tt"}};
  return NAMES[p->transposed[0]][p->transposed[1]];
}
