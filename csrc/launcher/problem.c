#include "problem.h"

#include <string.h>

const char *const FINISH_NAMES[FINISH_COUNT] = {
#define FINISH_TEXT(name, text, kind) text,
    EPILOGUES(FINISH_TEXT)
#undef FINISH_TEXT
};

const epilogue_kind FINISH_KINDS[FINISH_COUNT] = {
#define FINISH_KIND(name, text, kind) kind,
    EPILOGUES(FINISH_KIND)
#undef FINISH_KIND
};

int finish_named(PyObject *name) {
  for (int i = 0; i < FINISH_COUNT && PyUnicode_Check(name); i++)
    if (!PyUnicode_CompareWithASCIIString(name, FINISH_NAMES[i])) return i;
  PyErr_Format(PyExc_ValueError, "no epilogue %R", name);
  return -1;
}

int is_tensor(const launcher_state *state, PyObject *object) {
  PyObject *type = (PyObject *)Py_TYPE(object);
  return type == state->torch.tensor || type == state->torch.parameter;
}

static reason reason_of(matrix_kind kind) {
  switch (kind) {
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

reason problem_view(const launcher_state *state, void *tensor, matrix *result) {
  return reason_of(tensor_view(&state->reader, tensor, 0, result));
}

reason problem_view_batch(const launcher_state *state, void *tensor, matrix *result) {
  return reason_of(tensor_view_batch(&state->reader, tensor, 0, result));
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

// Where addresses, sizes and alignments stand in a tag; the batch-invariant mode has the last bit.
enum { TAG_PACKED = 11, TAG_ALIGN = 12, TAG_FINISH = 18 };

// Bytes, at most 16, that divide an address and the strides: 16, 8, 4 or 2, as a power of two.
static uint32_t aligned_to(const char *data, int32_t lead, int32_t step) {
  return (uint32_t)__builtin_ctz(16u | (uint32_t)(uintptr_t)data | (uint32_t)(lead | step) * 2);
}

static void make_key(problem *p) {
  const char *const data[3] = {p->a.data, p->b.data, NULL};
  uint32_t align = 0;
  for (int i = 0; i < 3; i++) {
    const uint32_t power = aligned_to(data[i], p->shape.ld[i], i < 2 ? p->shape.step[i] : 0);
    p->align[i] = power ? 1 << power : 2;
    align |= (power ? power - 1 : 0) << 2 * i;
  }
  const uint32_t bf16 = p->a.type == DL_BFLOAT;
  p->key = (problem_key){
      (uint32_t)p->shape.m,
      (uint32_t)p->shape.n,
      (uint32_t)p->shape.k,
      (uint32_t)p->a.device | (uint32_t)p->transposed[0] << 8 | (uint32_t)p->transposed[1] << 9 |
          bf16 << 10 | (uint32_t)p->packed << TAG_PACKED | align << TAG_ALIGN,
      {p->packed ? 0 : (uint32_t)p->shape.ld[0], p->packed ? 0 : (uint32_t)p->shape.ld[1]},
      (uint32_t)p->shape.batches,
      {p->packed ? 0 : (uint32_t)p->shape.step[0], p->packed ? 0 : (uint32_t)p->shape.step[1]}};
}

// Rows are columns, and columns rows.
static void transpose(matrix *m) {
  const int64_t rows = m->rows, row_stride = m->row_stride;
  m->rows = m->leading[0] = m->cols, m->row_stride = m->col_stride;
  m->cols = rows, m->col_stride = row_stride;
}

// How far the matrices of a batch lie apart; 0 where a stride is no int32.
static int settle_batches(problem *p) {
  const matrix *const operands[2] = {&p->a, &p->b};
  for (int i = 0; i < 2; i++) {
    const matrix *m = operands[i];
    if (m->batches > INT32_MAX || m->step > INT32_MAX) return 0;
    p->shape.step[i] = (int32_t)m->step;
    p->packed &= m->step == m->rows * m->cols;
  }
  p->shape.batches = (int32_t)p->a.batches;
  return 1;
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
  p->shape.groups = 0;
  p->packed = 1;
  if (!settle(&p->a, &p->transposed[0], &p->shape.ld[0], &p->packed) ||
      !settle(&p->b, &p->transposed[1], &p->shape.ld[1], &p->packed))
    return REASON_LAYOUT;
  p->shape.batches = p->shape.step[0] = p->shape.step[1] = 0;
  if (p->a.batches != 1 && !settle_batches(p)) return REASON_LAYOUT;
  p->shape.ld[2] = p->shape.n;
  p->finish = FINISH_NONE;
  p->addend = NULL;
  make_key(p);
  return REASON_COUNT;
}

reason problem_of_batches(problem *p) {
  const matrix *a = &p->a, *b = &p->b;
  if (a->leading_count != b->leading_count || a->batches != b->batches) return REASON_MISMATCH;
  const size_t outer = (size_t)(a->leading_count - 1) * sizeof *a->leading;
  if (memcmp(a->leading, b->leading, outer)) return REASON_SHAPE;
  if (!is_dim(a->batches)) return REASON_SHAPE;
  p->b.leading_count = 1;
  return problem_of_views(0, p);
}

// torch.matmul takes a batch of one matrix for as many of it as the other batch has.
static void repeat(matrix *m, const matrix *other) {
  if (m->leading_count != other->leading_count || m->batches != 1) return;
  const size_t outer = (size_t)(m->leading_count - 1) * sizeof *m->leading;
  memcpy(m->leading, other->leading, outer);
  m->batches = other->batches, m->step = 0;
}

static reason describe_batches(const launcher_state *state, PyObject *a, PyObject *b, problem *p) {
  reason why = problem_view_batch(state, tensor_in(&state->reader, a), &p->a);
  if (why == REASON_COUNT) why = problem_view_batch(state, tensor_in(&state->reader, b), &p->b);
  if (why != REASON_COUNT) return why;
  repeat(&p->a, &p->b), repeat(&p->b, &p->a);
  // Of one product torch makes no matrix that its own mm would take.
  return p->a.batches == 1 ? REASON_SHAPE : problem_of_batches(p);
}

// Whether both are tensors of three dimensions or more.
static int are_batches(reason first, reason second, const problem *p) {
  return (first == REASON_COUNT || first == REASON_LAYOUT) &&
         (second == REASON_COUNT || second == REASON_LAYOUT) && p->a.leading_count > 1 &&
         p->b.leading_count > 1;
}

reason problem_describe(const launcher_state *state, PyObject *a, PyObject *b, int linear,
                        problem *p) {
  const reason first = view(state, a, &p->a), second = view(state, b, &p->b);
  if ((first == REASON_COUNT && second == REASON_DEVICE) ||
      (first == REASON_DEVICE && second == REASON_COUNT))
    return REASON_MISMATCH;
  const int batches = !linear && are_batches(first, second, p);
  if (first != REASON_COUNT && !batches) return first;
  const reason why = batches                  ? describe_batches(state, a, b, p)
                     : second == REASON_COUNT ? problem_of_views(linear, p)
                                              : second;
  if (why == REASON_COUNT) p->key.tag |= state->invariant;
  return why;
}

reason problem_out(const launcher_state *state, PyObject *out, int bytes, problem *p) {
  const reason why = view(state, out, &p->c);
  if (why != REASON_COUNT) return why == REASON_DEVICE ? REASON_MISMATCH : why;
  return problem_of_output(p, bytes);
}

static int same_leading(const matrix *x, const matrix *y) {
  return x->leading_count == y->leading_count &&
         !memcmp(x->leading, y->leading, (size_t)x->leading_count * sizeof *x->leading);
}

reason problem_of_output(problem *p, int bytes) {
  const matrix *a = &p->a, *c = &p->c;
  if (!same_kind(a, c) || !same_leading(a, c) || c->cols != problem_columns(p))
    return REASON_MISMATCH;
  if (!c->data) return REASON_NO_VIEW;
  const int64_t lead = matrix_lead(c, 0);
  if (!lead) return REASON_OUT;
  // What promises 16 bytes was measured with packed rows, and is launched on no others.
  if (lead != c->cols && (bytes == 16 || lead > INT32_MAX)) return REASON_STRIDED;
  if (((uintptr_t)c->data | (lead != c->cols ? (uintptr_t)lead * 2 : 0)) % (uintptr_t)bytes)
    return REASON_UNALIGNED;
  // torch decides what an output that shares memory with an input means.
  const int is_row = FINISH_KINDS[p->finish] == EPILOGUE_BIAS;
  const matrix addend = {.data = p->addend,
                         .rows = is_row ? 1 : c->rows,
                         .cols = c->cols,
                         .row_stride = c->cols,
                         .col_stride = 1};
  if (matrix_overlap(a, c) || matrix_overlap(&p->b, c) || (p->addend && matrix_overlap(&addend, c)))
    return REASON_OUT;
  p->shape.ld[2] = (int32_t)lead;
  return REASON_COUNT;
}

int problem_view_addend(const launcher_state *state, void *tensor, matrix *result) {
  *result = (matrix){.leading_count = -1};
  const matrix_kind kind = tensor_view(&state->reader, tensor, 0, result);
  return kind == MATRIX || (kind == NOT_A_MATRIX && !result->leading_count);
}

// Whether it is a vector of N of the operands' type and device.
static int is_bias(const matrix *m, const problem *p) {
  return !m->leading_count && m->cols == p->b.cols && same_kind(&p->a, m) && m->data;
}

static int is_packed_bias(const matrix *m, const problem *p) {
  return is_bias(m, p) && (m->cols == 1 || m->col_stride == 1);
}

static int is_residual(const matrix *m, const problem *p) {
  return m->cols == p->b.cols && same_kind(&p->a, m) && same_leading(&p->a, m) && m->data &&
         matrix_lead(m, 0) == m->cols;
}

reason problem_finish(problem *p, finish how, const matrix *addend) {
  const epilogue_kind kind = FINISH_KINDS[how];
  if (kind == EPILOGUE_GATED && p->shape.n % 2) return REASON_SHAPE;
  if (kind == EPILOGUE_BIAS || kind == EPILOGUE_RESIDUAL) {
    if (!addend || !(kind == EPILOGUE_BIAS ? is_packed_bias : is_residual)(addend, p) ||
        (uintptr_t)addend->data % 16)
      return REASON_BIAS;
    p->addend = addend->data;
  }
  p->finish = how;
  if (kind == EPILOGUE_GATED) {
    const uint32_t mode = p->key.tag & INVARIANT_KEY;
    p->shape.ld[2] = problem_columns(p);
    make_key(p);  // rows of C are aligned in another way
    p->key.tag |= mode;
  }
  p->key.tag |= (uint32_t)how << TAG_FINISH;
  return REASON_COUNT;
}

reason problem_finish_with(const launcher_state *state, PyObject *addend, finish how, problem *p) {
  matrix found;
  if (!addend) return problem_finish(p, how, NULL);
  if (!is_tensor(state, addend)) return REASON_TENSOR_TYPE;
  if (!problem_view_addend(state, tensor_in(&state->reader, addend), &found)) return REASON_BIAS;
  return problem_finish(p, how, &found);
}

reason problem_bias(const launcher_state *state, PyObject *bias, const problem *p) {
  matrix found;
  if (!is_tensor(state, bias)) return REASON_TENSOR_TYPE;
  const int is_vector =
      problem_view_addend(state, tensor_in(&state->reader, bias), &found) && is_bias(&found, p);
  // With more leading dimensions, or rows or biases apart, torch adds it after the product.
  const int packed = p->packed && !p->transposed[0] && (found.cols == 1 || found.col_stride == 1);
  const int inside = p->a.leading_count == 1 || (p->a.leading_count == 2 && packed);
  return is_vector && inside ? REASON_COUNT : REASON_BIAS;
}

const char *problem_layout(const problem *p) {
  static const char *const NAMES[2][2] = {{"nn", "nt"}, {"tn", "tt"}};
  return NAMES[p->transposed[0]][p->transposed[1]];
}
