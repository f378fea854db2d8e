#include "operator.h"

#include <stdio.h>
#include <string.h>

#include "override.h"
#include "run.h"

operator_shim shim;

static launcher_state *program;  // whose kernels run, or NULL
static _Thread_local int passes;

int override_serves(const launcher_state *state) {
  return __atomic_load_n(&program, __ATOMIC_RELAXED) == state;
}

int override_pass(int yes) {
  const int before = passes;
  passes = yes;
  return before;
}

PyObject *override_serve(PyObject *module, PyObject *on) {
  const int yes = PyObject_IsTrue(on);
  if (yes < 0) return NULL;
  __atomic_store_n(&program, yes ? state_of(module) : NULL, __ATOMIC_RELEASE);
  Py_RETURN_NONE;
}

launcher_state *operator_program(void *a, void *b) {
  launcher_state *state = __atomic_load_n(&program, __ATOMIC_ACQUIRE);
  const int serves = state && !passes && tensor_is_half(&state->reader, a) &&
                     tensor_is_half(&state->reader, b) && Py_IsInitialized();
  return serves ? state : NULL;
}

void operator_move(void *made, void *place) {
  void *empty;
  shim.make(&empty);  // leaves behind what C++ may destroy
  memcpy(place, made, sizeof(void *));
  memcpy(made, empty, sizeof(void *));
  shim.drop(empty);
  shim.drop(made);
}

void operator_drop(void *place) {
  void *made;
  shim.make(&made);
  memcpy(made, place, sizeof(void *));
  shim.drop(made);
}

// A matrix, or a batch of some.
static reason view(const launcher_state *state, void *tensor, int batched, matrix *m) {
  const reason why = (batched ? problem_view_batch : problem_view)(state, tensor, m);
  return why == REASON_COUNT && m->leading_count != 1 + batched ? REASON_SHAPE : why;
}

// Where the result goes: all rows of all matrices behind each other.
static reason view_output(const launcher_state *state, void *tensor, int batched, matrix *m) {
  const reason why = problem_view(state, tensor, m);
  return why == REASON_COUNT && m->leading_count != 1 + batched ? REASON_SHAPE : why;
}

// What a sum adds: a bias, or a matrix of C's shape.
static reason describe_addend(const launcher_state *state, const operands *x, problem *p) {
  matrix m;
  if (x->scaled || !problem_view_addend(state, x->addend, &m)) return REASON_BIAS;
  const int is_vector = !m.leading_count;
  if (!is_vector && m.leading_count != 1 + x->batched) return REASON_BIAS;
  if (!x->ignored && is_vector) return problem_finish(p, x->biased, &m);
  if (x->biased != FINISH_BIAS) return REASON_BIAS;  // no kernel's activation is without a bias
  if (!x->ignored) return problem_finish(p, FINISH_RESIDUAL, &m);
  // It is not read, yet torch refuses one that does not fit.
  const int64_t rows = (int64_t)p->shape.m * products_of(&p->shape);
  const int fits = m.cols == p->shape.n && (is_vector || m.rows == rows) && m.type == p->a.type &&
                   m.device == p->a.device;
  return fits ? REASON_COUNT : REASON_BIAS;
}

static reason describe(const launcher_state *state, const operands *x, problem *p) {
  if (__atomic_load_n(&state->off, __ATOMIC_RELAXED)) return REASON_OFF;
  reason why = view(state, x->a, x->batched, &p->a);
  if (why == REASON_COUNT) why = view(state, x->b, x->batched, &p->b);
  if (why == REASON_COUNT) why = x->batched ? problem_of_batches(p) : problem_of_views(0, p);
  if (why == REASON_COUNT) p->key.tag |= __atomic_load_n(&state->invariant, __ATOMIC_RELAXED);
  if (why == REASON_COUNT && x->addend) why = describe_addend(state, x, p);
  if (why == REASON_COUNT && x->out) why = view_output(state, x->out, x->batched, &p->c);
  if (why == REASON_COUNT && x->out) why = problem_of_output(p, 16);
  // A user who lets torch add up in half precision asks for what no kernel does.
  if (why == REASON_COUNT && p->a.type == DL_FLOAT && shim.sums_in_half &&
      shim.sums_in_half(shim.context()))
    why = REASON_MODE;
  return why;
}

// Memory for the product of `p`, viewed in p->c; NULL where there is none.
static void *allocate(const launcher_state *state, problem *p, int batched) {
  const int64_t m = p->shape.m, n = p->shape.n;
  const int64_t sizes[] = {products_of(&p->shape), m, n}, strides[] = {m * n, n, 1};
  const tensor_reader *r = &state->reader;
  void *made = NULL;
  if (shim.allocate(2 + batched, sizes + !batched, strides + !batched,
                    p->a.type == DL_BFLOAT ? r->bf16 : r->f16, r->device_type, p->a.device, &made))
    return NULL;
  if (tensor_view(r, made, 1, &p->c) == MATRIX && p->c.data) return made;
  shim.drop(made);
  return NULL;
}

// Runs a kernel, with the GIL; the result in `result`, or why there is none.
static reason run(launcher_state *state, const operands *x, problem *p, void **result) {
  answer *found = lookup(state, p);
  if (!found) return REASON_NO_DEVICE;
  if (found->fallback != REASON_COUNT) return found->fallback;
  found->users++;  // as matmul.c holds it
  PyThreadState *thread = PyEval_SaveThread();
  void *out = x->out ? x->out : allocate(state, p, x->batched);
  if (out && x->out && matrix_claim(&state->reader, out, &p->c)) out = NULL;
  PyEval_RestoreThread(thread);
  const reason why = out ? run_kernel(state, p, found) : REASON_OUT;
  lookup_release(found);
  if (why == REASON_COUNT) *result = out;
  if (why != REASON_COUNT && out && !x->out) shim.drop(out);
  return why;
}

// An exception has no way through torch to who called it: an interrupt is made again, others said.
static void settle_exception(void) {
  if (!PyErr_Occurred()) return;
  if (!PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) {
    PyErr_WriteUnraisable(NULL);
    return;
  }
  PyErr_Clear();
  PyErr_SetInterrupt();
}

// In the batch-invariant mode torch runs no product, so this throws, as torch throws: of our own
// exceptions torch would not know what they are.
static void refuse(const operands *x, reason why) {
  char message[192];
  snprintf(message, sizeof message,
           "hgemm_packs.options(batch_invariant=True): torch's own product has no batch-invariant "
           "kernel here: %s (hgemm_packs.explain says more)",
           REASON_NAMES[why]);
  if (x->owned) {
    shim.drop(x->a);
    shim.drop(x->b);
    if (x->out) shim.drop(x->out);
  }
  shim.fail("hgemm_packs", "operator.c", 0, message);
}

void *operator_serve(launcher_state *state, const operands *x) {
  problem p;
  void *result = NULL;
  reason why = describe(state, x, &p);
  if (why == REASON_COUNT) {
    PyObject *type, *value, *trace;
    const PyGILState_STATE gil = PyGILState_Ensure();
    PyErr_Fetch(&type, &value, &trace);
    why = run(state, x, &p, &result);
    settle_exception();
    PyErr_Restore(type, value, trace);
    PyGILState_Release(gil);
  }
  if (why == REASON_COUNT) return result;
  count_fallback(state, why);
  if (__atomic_load_n(&state->invariant, __ATOMIC_RELAXED)) refuse(x, why);
  return NULL;
}
