// Everything the extension knows, one per module object: torch's entry points, the driver, the
// devices, the table and the counters. Guarded by the GIL; whatever a call reads from here it has
// read or copied before it next runs Python or releases the GIL.
#ifndef HGP_STATE_H
#define HGP_STATE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "cuda/launch.h"
#include "cuda/slab.h"
#include "table.h"
#include "torch/dlpack.h"
#include "torch/modes.h"
#include "torch/tensor.h"

// Why a call went to torch. X(enumerator, the name that counters and STRICT show). The second group
// are the codes of hgemm_packs.select, which answer for a problem.
#define REASONS(X)                           \
  X(OFF, "off")                              \
  X(NO_EXCHANGE, "torch_unsupported")        \
  X(TENSOR_TYPE, "tensor_type")              \
  X(NO_VIEW, "no_view")                      \
  X(MISMATCH, "mismatch")                    \
  X(DEVICE, "device")                        \
  X(DTYPE, "dtype")                          \
  X(SHAPE, "shape")                          \
  X(LAYOUT, "layout")                        \
  X(OUT, "out")                              \
  X(BIAS, "bias")                            \
  X(MODE, "mode")                            \
  X(AUTOGRAD, "autograd")                    \
  X(COLD_CAPTURE, "cold_capture")            \
  X(WORKSPACE, "workspace")                  \
  X(REFUSED, "refused")                      \
  X(LAUNCH_FAILED, "launch_failed")          \
  X(NO_DEVICE, "no_device")                  \
  X(NO_PACK, "no_pack")                      \
  X(PACK_REFUSED, "pack_refused")            \
  X(LAUNCHER_ABI, "launcher_abi")            \
  X(ARCH, "arch")                            \
  X(DRIVER, "driver")                        \
  X(PROFILE, "profile")                      \
  X(NOT_MEASURED, "not_measured")            \
  X(CUBLAS_BETTER, "cublas_measured_better") \
  X(BELOW_NOISE, "below_noise_floor")        \
  X(NO_INVARIANT, "no_invariant_kernel")     \
  X(QUARANTINED, "quarantined")              \
  X(STRIDED, "strided")                      \
  X(UNALIGNED, "unaligned")

typedef enum {
#define REASON_ENUM(name, text) REASON_##name,
  REASONS(REASON_ENUM)
#undef REASON_ENUM
      REASON_COUNT,
} reason;

extern const char *const REASON_NAMES[REASON_COUNT];

// Python objects of torch and of the package, handed over once by `init`; all owned.
typedef struct {
  PyObject *tensor, *parameter;  // exact types of the fast path
  PyObject *matmul, *mm, *linear, *addmm;
  PyObject *empty;          // torch.empty
  PyObject *empty_current;  // on the current device: (size, stride, dtype); or None
  PyObject *bump_version;   // (tensors): what every in-place torch op does to its output
  PyObject *f16, *bf16;
  PyObject *keep;     // of workspace.py
  PyObject *resolve;  // of dispatch.py
  PyObject *refuse;   // of dispatch.py: raises FallbackError under STRICT
  PyObject *record;   // of autograd.py
} torch_api;

// torch's products below its dispatcher (torch/product.c); none where `mm` is NULL. They return 0,
// or else have said on standard error what is wrong.
typedef struct {
  int32_t (*mm)(void *out, void *a, void *b);
  int32_t (*addmm)(void *out, void *bias, void *a, void *b, double beta, double alpha);
  int32_t (*view)(void *tensor, int64_t dims, const int64_t *sizes, const int64_t *strides,
                  int64_t offset, void **result);
  int32_t (*drop)(void *tensor);
} torch_products;

// What torch is told of an output's shape, kept from call to call of that shape.
enum { OUTPUT_BITS = 6 };
typedef struct {
  int64_t sizes[MAX_LEADING + 1];
  int dims, type;
  PyObject *args;  // (size, stride, dtype), or NULL
} output_args;

// Requests for memory that are let pass before torch is asked again, which empties its caches
// before it says no: the more, the more often it has.
typedef struct {
  uint32_t left, next;
} patience;

// Workspaces of one device: of launches under capture, and how soon memory is asked for again, for
// those and for eager calls.
typedef struct {
  slab *slab;
  patience captures, eager;
} workspaces;

// An iterator that is there for good and goes over a single tensor, whenever it has one: what a
// list would do, without an iterator of its own to make at every call.
typedef struct {
  PyObject base;
  PyObject *tensor;  // owned, or NULL
} one_tensor;

// The getter of an attribute of torch.Tensor, called without a lookup.
typedef struct {
  descrgetfunc get;
  PyObject *descriptor;
} tensor_getter;

typedef struct {
  int started;  // last of all: a call that sees it finds everything else
  uint32_t strict;
  uint32_t off;        // every call is torch's
  uint32_t invariant;  // INVARIANT_KEY in the batch-invariant mode, else 0
  PyObject *start;     // (): Python's part of the first call, owned; NULL until it is known
  PyObject *note;      // (reason): told of the first fallback for each reason, owned; may be NULL
  PyObject *record;    // (problem): told of every call that is looked up, owned; NULL: of none
  const dl_exchange *exchange;  // NULL: torch cannot be used, every call goes to it
  tensor_reader reader;
  int device_type;
  double least_recorded;  // operations of a product whose gradients are ours
  char *library;
  torch_api torch;
  torch_products products;
  output_args outputs[1 << OUTPUT_BITS];
  tensor_getter requires_grad;
  torch_modes modes;
  PyCFunction bump;    // C function of bump_version
  one_tensor *bumped;  // its argument
  PyObject *name_out, *name_input, *name_other, *name_weight, *name_bias, *name_dtype, *name_device;
  PyTypeObject *kernel_type;
  cu_driver driver;
  table functions;  // of loaded kernels: predecessor.c
  gpu devices[MAX_DEVICES];
  table table;
  table older;  // the generation before: what is not asked for again goes first
  struct unmeasured *unmeasured[MAX_DEVICES];  // unmeasured.c; NULL until a device's rows are known
  table buffers;                               // (stream, device) -> workspace of eager calls
  workspaces workspaces[MAX_DEVICES];
  uint64_t hits, launches, predicted, fallbacks[REASON_COUNT];
} launcher_state;

launcher_state *state_of(PyObject *module);

// Counts a call that torch runs, also without the GIL; how many there were before.
static inline uint64_t count_fallback(launcher_state *state, reason why) {
  return __atomic_fetch_add(&state->fallbacks[why], 1, __ATOMIC_RELAXED);
}

// Interns the names that every call compares; part of making the module.
int state_prepare(PyObject *module);

// init(...): hands over torch's entry points, once per module object. False when every call will
// go to torch, which offers no exchange table or not what tensors are read with.
PyObject *state_init(PyObject *module, PyObject *args, PyObject *kwargs);

// use_torch(matmul, linear, addmm, refuse, strict): instead of init where torch cannot be used;
// every call goes to it.
PyObject *state_use_torch(PyObject *module, PyObject *args);

// Puts an object in the place of another, nothing in that of None; None.
PyObject *state_replace(PyObject **place, PyObject *object);

// on_first_call(start): before its first product this module calls `start`, which ends in `init` or
// `use_torch`.
PyObject *state_on_first_call(PyObject *module, PyObject *start);

// remember_quiet(): the calling thread is in no special state of torch.
PyObject *state_remember_quiet(PyObject *module, PyObject *unused);

// Opens the driver and the device if need be. NULL with a RuntimeError set when there is none.
const gpu *state_device(launcher_state *state, long index);

#endif
