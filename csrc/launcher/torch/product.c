#include "torch/product.h"

#include <dlfcn.h>
#include <string.h>

#include "torch/output.h"

void products_bind(torch_products *products, int on_cuda) {
  const struct {
    const char *name;
    void *function;
    int of_device;
  } wanted[] = {
      {on_cuda ? "aoti_torch_cuda_mm_out" : "aoti_torch_cpu_mm_out", &products->mm, 1},
      {on_cuda ? "aoti_torch_cuda_addmm_out" : "aoti_torch_cpu_addmm_out", &products->addmm, 1},
      {"aoti_torch__reinterpret_tensor", &products->view, 0},
      {"aoti_torch_delete_tensor_object", &products->drop, 0},
  };
  void *common = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  void *own = on_cuda ? dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD) : common;
  *products = (torch_products){0};
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
    void *library = wanted[i].of_device ? own : common;
    void *found = library ? dlsym(library, wanted[i].name) : NULL;
    if (!found) {
      products->mm = NULL;
      return;
    }
    memcpy(wanted[i].function, &found, sizeof found);
  }
}

static void *handle(const launcher_state *state, PyObject *tensor) {
  return tensor_in(&state->reader, tensor);
}

// A matrix of the same memory, to be dropped; NULL where torch has none. Where a side is 1 its
// stride means nothing here, and must mean something to torch.
static void *view(const launcher_state *state, PyObject *tensor, const matrix *m) {
  const int64_t sizes[2] = {m->rows, m->cols};
  const int64_t strides[2] = {m->rows == 1 ? m->cols : m->row_stride,
                              m->cols == 1 ? 1 : m->col_stride};
  void *result = NULL;
  return state->products.view(handle(state, tensor), 2, sizes, strides, 0, &result) ? NULL : result;
}

typedef struct {
  void *out, *a, *b, *bias;
} operands;

// Below autograd and with the GIL released, as torch's own functions have it.
static int multiply(const launcher_state *state, const operands *x) {
  const torch_products *products = &state->products;
  const uint64_t *ordinary = state->reader.ordinary;
  PyThreadState *thread = PyEval_SaveThread();
  const uint64_t excluded = modes_exclude(&state->modes, ordinary[0] & ~ordinary[1]);
  const int failed = x->bias ? products->addmm(x->out, x->bias, x->a, x->b, 1.0, 1.0)
                             : products->mm(x->out, x->a, x->b);
  modes_restore(&state->modes, excluded);
  PyEval_RestoreThread(thread);
  return failed;
}

int torch_has_product(const launcher_state *state) {
  return state->products.mm && state->modes.c10;
}

PyObject *torch_product(launcher_state *state, const call *c, problem *p) {
  const torch_products *products = &state->products;
  PyObject *out = output_of(state, c, p);
  if (!out) return NULL;
  const int folded = p->a.leading_count > 1;
  void *const a = folded ? view(state, c->a, &p->a) : NULL;
  void *const b = c->linear ? view(state, c->b, &p->b) : NULL;
  const matrix flat = {
      .rows = p->shape.m, .cols = p->shape.n, .row_stride = p->shape.n, .col_stride = 1};
  void *const to = folded ? view(state, out, &flat) : NULL;
  int failed = (folded && (!a || !to)) || (c->linear && !b);
  if (!failed) {
    const operands x = {to ? to : handle(state, out), a ? a : handle(state, c->a),
                        b ? b : handle(state, c->b), c->bias ? handle(state, c->bias) : NULL};
    failed = multiply(state, &x);
  }
  void *const views[] = {a, b, to};
  for (int i = 0; i < 3; i++)
    if (views[i]) products->drop(views[i]);
  if (failed) Py_CLEAR(out);
  return out;
}
