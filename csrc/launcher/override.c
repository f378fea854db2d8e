#include "override.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <stdio.h>
#include <string.h>

#include "run.h"

// A C++ tensor is one pointer, which C++ returns where the caller has made room: in C as whatever
// is too large for registers.
typedef struct {
  void *words[4];
} returned;

// Operators, and functions of torch that run them on one kind of device. Those may throw, through
// our frames: nothing here is to be undone when they do, but for `unfinished`.
#define OPERATORS(X)        \
  X(mm, "mm", 0, 0)         \
  X(bmm, "bmm", 1, 0)       \
  X(mm_out, "mm.out", 0, 1) \
  X(bmm_out, "bmm.out", 1, 1)

typedef returned (*product)(const void *a, const void *b);
typedef void *(*product_out)(void *out, const void *a, const void *b);
typedef void (*boxed)(uint64_t *stack, uint64_t arguments, uint64_t returns);

// Of torch's C shim, but for the last two, of which a torch that lacks them has no such flag.
static struct {
  product mm, bmm;
  product_out mm_out, bmm_out;
  int32_t (*init)(const char *space, const char *key, const char *file, uint32_t line, void **);
  int32_t (*implement)(void *library, const char *name, boxed function);
  int32_t (*make)(void **tensor);
  int32_t (*drop)(void *tensor);
  int32_t (*allocate)(int64_t dims, const int64_t *sizes, const int64_t *strides, int32_t type,
                      int32_t device_type, int32_t device, void **result);
  void (*fail)(const char *function, const char *file, uint32_t line, const char *message);
  const void *(*context)(void);
  bool (*sums_in_half)(const void *context);
} torch;

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

typedef struct {
  void *a, *b, *out;  // out: NULL, or what is written
  int batched;
} operands;

// torch hands a call's tensors over, and C does not see an exception of torch's pass. Those of a
// call that ended so are let go of at the thread's next call that is not made within another.
enum { MOST_UNFINISHED = 8, MOST_FRAMES = 512 };
static _Thread_local operands unfinished[MOST_UNFINISHED];
static _Thread_local int unfinished_count;

// `out` of a call that has ended well is its result.
static void let_go(const operands *x) {
  torch.drop(x->a);
  torch.drop(x->b);
}

static void let_go_above(int count) {
  while (unfinished_count > count) {
    const operands *x = &unfinished[--unfinished_count];
    let_go(x);
    if (x->out) torch.drop(x->out);
  }
}

// What calls torch lies in a section of its own, of which linkers tell where it is.
extern const char __start_hgp_into_torch[] __attribute__((visibility("hidden")));
extern const char __stop_hgp_into_torch[] __attribute__((visibility("hidden")));

// Whether certainly no call of ours into torch is on this thread's stack.
static int is_outermost(void) {
  void *frames[MOST_FRAMES];
  const int count = backtrace(frames, MOST_FRAMES);
  for (int i = 0; i < count; i++) {
    const char *frame = frames[i];
    if (frame >= __start_hgp_into_torch && frame <= __stop_hgp_into_torch) return 0;
  }
  return count < MOST_FRAMES;
}

__attribute__((section("hgp_into_torch"), noinline)) static void *run_by_torch(const operands *x) {
  const int before = unfinished_count;
  if (before < MOST_UNFINISHED) unfinished[unfinished_count++] = *x;
  void *result = x->out;
  if (x->out) {
    (x->batched ? torch.bmm_out : torch.mm_out)(x->out, x->a, x->b);
  } else {
    const returned made = (x->batched ? torch.bmm : torch.mm)(x->a, x->b);
    torch.make(&result);
    memcpy(result, &made, sizeof(void *));  // moved: nothing is left behind that C++ would destroy
  }
  if (before < MOST_UNFINISHED) {
    let_go_above(before + 1);  // of calls within this one
    unfinished_count = before;
  }
  return result;
}

// A matrix, or of a batch the only one.
static reason view(const launcher_state *state, void *tensor, int batched, matrix *m) {
  const reason why = problem_view(state, tensor, m);
  if (why != REASON_COUNT) return why;
  if (m->leading_count != 1 + batched || (batched && m->leading[0] != 1)) return REASON_SHAPE;
  m->leading_count = 1, m->leading[0] = m->rows;
  return REASON_COUNT;
}

static reason describe(const launcher_state *state, const operands *x, problem *p) {
  if (__atomic_load_n(&state->off, __ATOMIC_RELAXED)) return REASON_OFF;
  reason why = view(state, x->a, x->batched, &p->a);
  if (why == REASON_COUNT) why = view(state, x->b, x->batched, &p->b);
  if (why == REASON_COUNT) why = problem_of_views(0, p);
  if (why == REASON_COUNT) p->key.tag |= __atomic_load_n(&state->invariant, __ATOMIC_RELAXED);
  if (why == REASON_COUNT && x->out) why = view(state, x->out, x->batched, &p->c);
  if (why == REASON_COUNT && x->out) why = problem_of_output(p);
  // A user who lets torch add up in half precision asks for what no kernel does.
  if (why == REASON_COUNT && p->a.type == DL_FLOAT && torch.sums_in_half &&
      torch.sums_in_half(torch.context()))
    why = REASON_MODE;
  return why;
}

// Memory for the product of `p`, viewed in p->c; NULL where there is none.
static void *allocate(const launcher_state *state, problem *p, int batched) {
  const int64_t m = p->shape.m, n = p->shape.n, sizes[] = {1, m, n}, strides[] = {m * n, n, 1};
  const tensor_reader *r = &state->reader;
  void *made = NULL;
  if (torch.allocate(2 + batched, sizes + !batched, strides + !batched,
                     p->a.type == DL_BFLOAT ? r->bf16 : r->f16, r->device_type, p->a.device, &made))
    return NULL;
  if (tensor_view(r, made, 1, &p->c) == MATRIX && p->c.data) return made;
  torch.drop(made);
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
  if (why != REASON_COUNT && out && !x->out) torch.drop(out);
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
// exceptions torch would not know what they are. Nobody else lets go of what the call was handed.
static void refuse(const operands *x, reason why) {
  char message[192];
  snprintf(message, sizeof message,
           "hgemm_packs.options(batch_invariant=True): torch's own product has no batch-invariant "
           "kernel here: %s (hgemm_packs.explain says more)",
           REASON_NAMES[why]);
  let_go(x);
  if (x->out) torch.drop(x->out);
  torch.fail("hgemm_packs", "override.c", 0, message);
}

// A kernel's result, or NULL where torch is to run the call.
static void *serve(launcher_state *state, const operands *x) {
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

static void run_operator(uint64_t *stack, int batched, int has_out) {
  const operands x = {(void *)(uintptr_t)stack[0], (void *)(uintptr_t)stack[1],
                      has_out ? (void *)(uintptr_t)stack[2] : NULL, batched};
  launcher_state *state = __atomic_load_n(&program, __ATOMIC_ACQUIRE);
  void *result = NULL;
  if (unfinished_count && is_outermost()) let_go_above(0);
  if (state && !passes && tensor_is_half(&state->reader, x.a) &&
      tensor_is_half(&state->reader, x.b) && Py_IsInitialized())
    result = serve(state, &x);
  if (!result) result = run_by_torch(&x);
  let_go(&x);
  stack[0] = (uint64_t)(uintptr_t)result;
}

#define OPERATOR(function, name, batched, out)                                             \
  static void operator_##function(uint64_t *stack, uint64_t arguments, uint64_t returns) { \
    (void)arguments, (void)returns;                                                        \
    run_operator(stack, batched, out);                                                     \
  }
OPERATORS(OPERATOR)
#undef OPERATOR

// Finds torch's functions: 1, or 0 in a torch without such devices, -1 where one is missing.
static int bind(int on_cuda) {
  const struct {
    const char *name;
    void *function;
    int of_device;
  } wanted[] = {
      {on_cuda ? "_ZN2at4cuda2mmERKNS_6TensorES3_" : "_ZN2at3cpu2mmERKNS_6TensorES3_", &torch.mm,
       1},
      {on_cuda ? "_ZN2at4cuda3bmmERKNS_6TensorES3_" : "_ZN2at3cpu3bmmERKNS_6TensorES3_", &torch.bmm,
       1},
      {on_cuda ? "_ZN2at4cuda6mm_outERNS_6TensorERKS1_S4_"
               : "_ZN2at3cpu6mm_outERNS_6TensorERKS1_S4_",
       &torch.mm_out, 1},
      {on_cuda ? "_ZN2at4cuda7bmm_outERNS_6TensorERKS1_S4_"
               : "_ZN2at3cpu7bmm_outERNS_6TensorERKS1_S4_",
       &torch.bmm_out, 1},
      {"aoti_torch_library_init_impl", &torch.init, 0},
      {"aoti_torch_library_impl", &torch.implement, 0},
      {"aoti_torch_new_uninitialized_tensor", &torch.make, 0},
      {"aoti_torch_delete_tensor_object", &torch.drop, 0},
      {"aoti_torch_empty_strided", &torch.allocate, 0},
      {"_ZN3c106detail14torchCheckFailEPKcS2_jS2_", &torch.fail, 0},
      {"_ZN2at13globalContextEv", &torch.context, 0},
      {"_ZNK2at7Context27allowFP16AccumulationCuBLASEv", &torch.sums_in_half, 0},
  };
  const size_t count = sizeof wanted / sizeof *wanted;
  void *common = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  void *own = on_cuda ? dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD) : common;
  if (!own) return 0;
  for (size_t i = 0; i < count; i++) {
    void *library = wanted[i].of_device ? own : common;
    void *found = library ? dlsym(library, wanted[i].name) : NULL;
    if (!found && i < count - 2) return -1;
    memcpy(wanted[i].function, &found, sizeof found);
  }
  if (!torch.context) torch.sums_in_half = NULL;
  return 1;
}

static const struct {
  const char *name;
  boxed function;
} MINE[] = {
#define ENTRY(function, name, batched, out) {name, operator_##function},
    OPERATORS(ENTRY)
#undef ENTRY
};

PyObject *override_py(PyObject *module, PyObject *is_torchs) {
  static int done;
  const launcher_state *state = state_of(module);
  const char *key = state->device_type == DL_CUDA ? "CUDA" : "CPU";
  void *library;  // torch keeps what it registers for as long as it lives: for good
  const int bound = done || !state->exchange ? -1 : bind(state->device_type == DL_CUDA);
  if (done || !bound) Py_RETURN_NONE;
  if (bound < 0 || torch.init("aten", key, "hgemm_packs", 1, &library)) {
    PyErr_SetString(PyExc_RuntimeError, "this torch does not let C run its operators");
    return NULL;
  }
  done = 1;
  for (size_t i = 0; i < sizeof MINE / sizeof *MINE; i++) {
    PyObject *answer = PyObject_CallFunction(is_torchs, "ss", MINE[i].name, key);
    const int yes = answer ? PyObject_IsTrue(answer) : -1;
    Py_XDECREF(answer);
    if (yes < 0) return NULL;
    if (yes && torch.implement(library, MINE[i].name, MINE[i].function)) {
      PyErr_Format(PyExc_RuntimeError, "torch does not take an aten::%s", MINE[i].name);
      return NULL;
    }
  }
  Py_RETURN_NONE;
}

PyObject *override_serve(PyObject *module, PyObject *on) {
  const int yes = PyObject_IsTrue(on);
  if (yes < 0) return NULL;
  __atomic_store_n(&program, yes ? state_of(module) : NULL, __ATOMIC_RELEASE);
  Py_RETURN_NONE;
}
