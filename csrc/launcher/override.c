#include "override.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <string.h>

#include "operator.h"
#include "sums.h"
#include "torch/dispatcher.h"

// A C++ tensor is one pointer, which C++ returns where the caller has made room: in C as whatever
// is too large for registers.
typedef cpp_object returned;

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

// Of torch, the last two of its C shim.
static struct {
  product mm, bmm;
  product_out mm_out, bmm_out;
  int32_t (*init)(const char *space, const char *key, const char *file, uint32_t line, void **);
  int32_t (*implement)(void *library, const char *name, boxed function);
} torch;

// torch hands a call's tensors over, and C does not see an exception of torch's pass. Those of a
// call that ended so are let go of at the thread's next call that is not made within another.
enum { MOST_UNFINISHED = 8, MOST_FRAMES = 512 };
static _Thread_local operands unfinished[MOST_UNFINISHED];
static _Thread_local int unfinished_count;

// `out` of a call that has ended well is its result.
static void let_go(const operands *x) {
  shim.drop(x->a);
  shim.drop(x->b);
}

static void let_go_above(int count) {
  while (unfinished_count > count) {
    const operands *x = &unfinished[--unfinished_count];
    let_go(x);
    if (x->out) shim.drop(x->out);
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
    shim.make(&result);
    memcpy(result, &made, sizeof(void *));  // moved: nothing is left behind that C++ would destroy
  }
  if (before < MOST_UNFINISHED) {
    let_go_above(before + 1);  // of calls within this one
    unfinished_count = before;
  }
  return result;
}

static void run_operator(uint64_t *stack, int batched, int has_out) {
  const operands x = {(void *)(uintptr_t)stack[0], (void *)(uintptr_t)stack[1],
                      has_out ? (void *)(uintptr_t)stack[2] : NULL, batched, .owned = 1};
  if (unfinished_count && is_outermost()) let_go_above(0);
  launcher_state *state = operator_program(x.a, x.b);
  void *result = state ? operator_serve(state, &x) : NULL;
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

// Finds torch's functions, and `own`, the library that has those of our devices: 1, or 0 in a torch
// without such devices, -1 where one is missing.
static int bind(int on_cuda, void **own) {
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
      {"aoti_torch_new_uninitialized_tensor", &shim.make, 0},
      {"aoti_torch_delete_tensor_object", &shim.drop, 0},
      {"aoti_torch_empty_strided", &shim.allocate, 0},
      {"_ZN3c106detail14torchCheckFailEPKcS2_jS2_", &shim.fail, 0},
      {"_ZN2at13globalContextEv", &shim.context, 0},
      {"_ZNK2at7Context27allowFP16AccumulationCuBLASEv", &shim.sums_in_half, 0},
  };
  const size_t count = sizeof wanted / sizeof *wanted;
  void *common = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  *own = on_cuda ? dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD) : common;
  if (!*own) return 0;
  for (size_t i = 0; i < count; i++) {
    void *library = wanted[i].of_device ? *own : common;
    void *found = library ? dlsym(library, wanted[i].name) : NULL;
    if (!found && i < count - 2) return -1;
    memcpy(wanted[i].function, &found, sizeof found);
  }
  if (!shim.context) shim.sums_in_half = NULL;
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

// Where program.py has an operator from whose call is learned how arguments lie on a stack.
#define LESSONS "hgemm_packs_lessons"

// The number of the dispatch key, where torch's own function is there: 0 where it is not, -1 with
// an exception.
static long ask(PyObject *find, const char *name, const char *key) {
  PyObject *answer = PyObject_CallFunction(find, "ss", name, key);
  const long number = answer ? PyLong_AsLong(answer) : -1;
  Py_XDECREF(answer);
  return number;
}

static PyObject *not_taken(const char *name) {
  return PyErr_Format(PyExc_RuntimeError, "torch does not take an aten::%s", name);
}

PyObject *override_py(PyObject *module, PyObject *find) {
  static int done;
  const launcher_state *state = state_of(module);
  const int on_cuda = state->device_type == DL_CUDA;
  const char *key = on_cuda ? "CUDA" : "CPU";
  void *library, *lessons, *own;  // torch keeps what it registers for as long as it lives: for good
  const int bound = done || !state->exchange ? -1 : bind(on_cuda, &own);
  if (done || !bound) Py_RETURN_NONE;
  if (bound < 0 || torch.init("aten", key, "hgemm_packs", 1, &library))
    return PyErr_Format(PyExc_RuntimeError, "this torch does not let C run its operators");
  done = 1;
  for (size_t i = 0; i < sizeof MINE / sizeof *MINE; i++) {
    const long number = ask(find, MINE[i].name, key);
    if (number < 0) return NULL;
    if (number && torch.implement(library, MINE[i].name, MINE[i].function))
      return not_taken(MINE[i].name);
  }
  if (!sums_bind(own, on_cuda) || torch.init(LESSONS, "CPU", "hgemm_packs", 1, &lessons))
    Py_RETURN_FALSE;
  dispatcher_put_lesson(lessons, "numbers");
  for (int i = 0; i < SUMS; i++) {
    const long number = ask(find, SUM_NAMES[i], key);
    if (number < 0) return NULL;
    if (number && sums_put(library, i, (uint16_t)number)) return not_taken(SUM_NAMES[i]);
  }
  Py_RETURN_TRUE;
}
