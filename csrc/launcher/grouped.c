#include "grouped.h"

#include "cuda/kernel_type.h"
#include "problem.h"
#include "torch/fallback.h"

typedef struct {
  geometry shape;
  block tokens, weights, ends;
  int transposed;  // how each matrix of the weights is stored
} grouped;

static reason view(const launcher_state *state, PyObject *object, int element, block *result) {
  if (!is_tensor(state, object)) return REASON_TENSOR_TYPE;
  switch (block_view(&state->reader, object, element, result)) {
    case MATRIX:
      return result->data ? REASON_COUNT : REASON_NO_VIEW;
    case ELSEWHERE:
      return REASON_DEVICE;
    case NOT_A_MATRIX:
      return REASON_SHAPE;
    default:
      return REASON_NO_VIEW;
  }
}

static int is_dim(int64_t size) {
  return size >= 1 && size <= INT32_MAX;
}

// What does not fit torch's own rules, or what a kernel reads.
static reason check(const launcher_state *state, const grouped *g) {
  const tensor_reader *reader = &state->reader;
  const block *a = &g->tokens, *b = &g->weights, *ends = &g->ends;
  if (a->dim != 2 || b->dim != 3 || ends->dim != 1) return REASON_SHAPE;
  if (a->device != b->device || a->device != ends->device || a->type != b->type ||
      ends->type != reader->i32 || a->sizes[1] != b->sizes[1] || b->sizes[0] != ends->sizes[0])
    return REASON_MISMATCH;
  if ((uint32_t)a->device >= MAX_DEVICES) return REASON_DEVICE;
  if (a->type != reader->f16 && a->type != reader->bf16) return REASON_DTYPE;
  if (!is_dim(a->sizes[0]) || !is_dim(a->sizes[1]) || !is_dim(b->sizes[0]) || !is_dim(b->sizes[2]))
    return REASON_SHAPE;
  return REASON_COUNT;
}

// How the tensors lie: rows behind each other, and matrices.
static reason settle(grouped *g) {
  const block *a = &g->tokens, *b = &g->weights;
  const int64_t groups = b->sizes[0], k = b->sizes[1], n = b->sizes[2];
  g->transposed = b->strides[1] == 1 && b->strides[2] == k;
  if (!g->transposed && (b->strides[2] != 1 || b->strides[1] != n)) return REASON_LAYOUT;
  if (a->strides[1] != 1 || (g->ends.strides[0] != 1 && groups > 1)) return REASON_LAYOUT;
  if ((a->strides[0] != k && a->sizes[0] > 1) || (b->strides[0] != k * n && groups > 1))
    return REASON_STRIDED;
  if (((uintptr_t)a->data | (uintptr_t)b->data | (uintptr_t)k * 2 | (uintptr_t)n * 2) % 16)
    return REASON_UNALIGNED;
  g->shape = (geometry){.m = (int32_t)a->sizes[0],
                        .n = (int32_t)n,
                        .k = (int32_t)k,
                        .ld = {(int32_t)k, (int32_t)(g->transposed ? k : n), (int32_t)n},
                        .groups = (int32_t)groups};
  return REASON_COUNT;
}

static reason describe(const launcher_state *state, PyObject *const *args, grouped *g) {
  if (!state->exchange) return REASON_NO_EXCHANGE;
  block *const blocks[] = {&g->tokens, &g->weights, &g->ends};
  reason why = REASON_COUNT;
  for (int i = 0; i < 3 && why == REASON_COUNT; i++)
    why = view(state, args[i], i == 2 ? 4 : 2, blocks[i]);
  if (why == REASON_COUNT) why = check(state, g);
  return why == REASON_COUNT ? settle(g) : why;
}

PyObject *grouped_describe_py(PyObject *module, PyObject *const *args, Py_ssize_t count) {
  const launcher_state *state = state_of(module);
  grouped g;
  if (count != 3) return PyErr_Format(PyExc_TypeError, "describe_grouped(tokens, weights, ends)");
  reason why = describe(state, args, &g);
  if (why == REASON_COUNT) {
    const int quiet = modes_quiet(&state->modes);
    if (quiet < 0) return NULL;
    if (!quiet) why = REASON_MODE;
  }
  if (why != REASON_COUNT) return PyUnicode_FromString(REASON_NAMES[why]);
  return Py_BuildValue("(iiiissi)", g.shape.groups, g.shape.m, g.shape.n, g.shape.k,
                       g.transposed ? "nt" : "nn",
                       g.tokens.type == state->reader.bf16 ? "bf16" : "f16", g.tokens.device);
}

// Whether `out` is a packed [T, N] beside the tokens.
static int holds_result(const launcher_state *state, PyObject *out, const grouped *g,
                        matrix *result) {
  const int wanted = g->tokens.type == state->reader.bf16 ? DL_BFLOAT : DL_FLOAT;
  return is_tensor(state, out) && matrix_view(&state->reader, out, 1, result) == MATRIX &&
         result->leading_count == 1 && result->rows == g->shape.m && result->cols == g->shape.n &&
         result->type == wanted && result->device == g->tokens.device && result->data &&
         matrix_lead(result, 0) == g->shape.n;
}

PyObject *grouped_launch_py(PyObject *module, PyObject *const *args, Py_ssize_t count) {
  launcher_state *state = state_of(module);
  const cu_driver *driver = &state->driver;
  grouped g;
  matrix out;
  plan run;
  int pushed;
  void *stream;
  if (count != 5)
    return PyErr_Format(PyExc_TypeError, "launch_grouped(kernel, tokens, weights, ends, out)");
  const loaded_kernel *kernel = kernel_of(state, args[0]);
  if (!kernel) return NULL;
  const reason why = describe(state, args + 1, &g);
  if (why != REASON_COUNT)
    return PyErr_Format(PyExc_ValueError, "launch_grouped: %s", REASON_NAMES[why]);
  const launch_record *record = &kernel->record;
  if (g.tokens.device != kernel->device || g.transposed != record->transposed[1] ||
      (g.tokens.type == state->reader.bf16) != (record->dtype == DL_BFLOAT) ||
      !holds_result(state, args[4], &g, &out))
    return PyErr_Format(PyExc_ValueError, "launch_grouped: not what this kernel takes");
  void *const addresses[ADDRESSES] = {g.tokens.data, g.weights.data, out.data, g.ends.data};
  const char *refusal = plan_make(driver, kernel, &g.shape, addresses, &run);
  if (refusal) return PyErr_Format(PyExc_ValueError, "%s", refusal);
  if (state->exchange->current_stream(state->device_type, kernel->device, &stream)) return NULL;
  cu_result result = device_enter(driver, run.context, &pushed);
  if (result == CU_OK) result = plan_run(driver, &run, addresses, g.shape.n, NULL, stream);
  device_leave(driver, pushed);
  if (result != CU_OK)
    return PyErr_Format(PyExc_RuntimeError, "launch: %s", driver_error(driver, result));
  state->hits++, state->launches++;
  Py_RETURN_NONE;
}

PyObject *grouped_fall_back_py(PyObject *module, PyObject *name) {
  for (int i = 0; i < REASON_COUNT && PyUnicode_Check(name); i++)
    if (!PyUnicode_CompareWithASCIIString(name, REASON_NAMES[i])) {
      launcher_state *state = state_of(module);
      // Switched off, a call is torch's whatever STRICT says.
      if (i == REASON_OFF && !state->invariant)
        count_fallback(state, REASON_OFF);
      else if (torch_count(state, (reason)i, NULL))
        return NULL;
      Py_RETURN_NONE;
    }
  return PyErr_Format(PyExc_ValueError, "no reason %R", name);
}
