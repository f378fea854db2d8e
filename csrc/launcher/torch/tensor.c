#include "torch/tensor.h"

#include <dlfcn.h>
#include <string.h>

#include "torch/dlpack.h"

int reader_bind(tensor_reader *reader, int dl_device_type) {
  tensor_reader *r = reader;
  int32_t (*device_type)(void), (*f16)(void), (*bf16)(void), (*i32)(void);
  const int on_cuda = dl_device_type == DL_CUDA;
  const struct {
    const char *name;
    void *function;
  } wanted[] = {
      {"aoti_torch_get_dim", &r->get_dim},
      {"aoti_torch_get_sizes", &r->get_sizes},
      {"aoti_torch_get_strides", &r->get_strides},
      {"aoti_torch_get_storage_offset", &r->get_offset},
      {"aoti_torch_get_dtype", &r->get_type},
      {"aoti_torch_get_device_type", &r->get_device_type},
      {"aoti_torch_get_device_index", &r->get_device},
      {"torch_get_const_data_ptr", &r->get_data},
      {"torch_get_mutable_data_ptr", &r->get_data_to_write},
      {on_cuda ? "aoti_torch_device_type_cuda" : "aoti_torch_device_type_cpu", &device_type},
      {"aoti_torch_dtype_float16", &f16},
      {"aoti_torch_dtype_bfloat16", &bf16},
      {"aoti_torch_dtype_int32", &i32},
  };
  void *torch = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
    void *found = torch ? dlsym(torch, wanted[i].name) : NULL;
    if (!found) return 0;
    memcpy(wanted[i].function, &found, sizeof found);
  }
  void *c10 = dlopen("libc10.so", RTLD_LAZY | RTLD_NOLOAD);
  void *grad = c10 ? dlsym(c10, "_ZNK3c1010TensorImpl13requires_gradEv") : NULL;
  memcpy(&r->requires_grad, &grad, sizeof grad);
  r->device_type = device_type(), r->f16 = f16(), r->bf16 = bf16(), r->i32 = i32();
  return 1;
}

// torch's own C++ tensor, which a Python one points to.
static const char *inside(const void *tensor) {
  const char *place;
  memcpy(&place, tensor, sizeof place);
  return place;
}

static uint64_t keys_of(const tensor_reader *reader, const void *tensor) {
  uint64_t keys;
  memcpy(&keys, inside(tensor) + reader->keys, sizeof keys);
  return keys;
}

// Up to so many dimensions sizes and strides lie in the tensor itself, one array after the other.
enum { INLINE_DIMS = 5 };

typedef struct {
  int64_t dim, offset;
  const int64_t *sizes, *strides;
  int32_t type;
} geometry;

// -1 where torch does not say.
static int read_geometry(const tensor_reader *r, void *tensor, geometry *g) {
  if (r->dims) {
    const char *place = inside(tensor);
    uint16_t type;
    memcpy(&g->dim, place + r->dims, sizeof g->dim);
    memcpy(&g->offset, place + r->offset, sizeof g->offset);
    memcpy(&type, place + r->type, sizeof type);
    g->type = type;
    g->sizes = (const int64_t *)(place + r->dims) + 1;
    g->strides = g->sizes + INLINE_DIMS;
    if (g->dim <= INLINE_DIMS) return 0;
  }
  int64_t *sizes, *strides;
  if (r->get_dim(tensor, &g->dim) || r->get_sizes(tensor, &sizes) ||
      r->get_strides(tensor, &strides) || r->get_offset(tensor, &g->offset) ||
      r->get_type(tensor, &g->type))
    return -1;
  g->sizes = sizes, g->strides = strides;
  return 0;
}

// Folds dimensions 0..count-1 into rows of one stride, as torch.matmul does for `x @ w`.
static int fold(const int64_t *sizes, const int64_t *strides, int count, matrix *result) {
  int64_t step;
  result->rows = 1;
  result->row_stride = 0;
  for (int i = count - 1; i >= 0; i--) {
    const int64_t size = sizes[i];
    result->leading[i] = size;
    if (size == 1) continue;
    if (result->rows == 1)
      result->row_stride = strides[i];
    else if (__builtin_mul_overflow(result->row_stride, result->rows, &step) || strides[i] != step)
      return 0;
    if (__builtin_mul_overflow(result->rows, size, &result->rows)) return 0;
  }
  return 1;
}

int tensor_is_half(const tensor_reader *r, void *tensor) {
  int32_t type;
  uint16_t word;
  if (r->dims) {
    memcpy(&word, inside(tensor) + r->type, sizeof word);
    return word == r->f16 || word == r->bf16;
  }
  return !r->get_type(tensor, &type) && (type == r->f16 || type == r->bf16);
}

// All of a view but how dimensions become rows; MATRIX where there are two or more.
static inline matrix_kind begin_view(const tensor_reader *r, void *tensor, int to_write,
                                     geometry *read, matrix *result) {
  void *data;
  const uint64_t keys = keys_of(r, tensor);
  int32_t device;
  result->is_inference = keys == r->ordinary[1];
  if (!result->is_inference && keys != r->ordinary[0])
    return r->get_device_type(tensor, &read->type) || read->type == r->device_type ? NOT_VIEWABLE
                                                                                   : ELSEWHERE;
  if (read_geometry(r, tensor, read) || r->get_device(tensor, &device) ||
      (to_write ? r->get_data_to_write(tensor, &data) : r->get_data(tensor, (const void **)&data)))
    return NOT_VIEWABLE;
  // Every field is copied: sizes and strides are the tensor's, and Python may run before the
  // launch.
  const geometry g = *read;
  result->type = g.type == r->f16 ? DL_FLOAT : g.type == r->bf16 ? DL_BFLOAT : -1 - g.type;
  result->device = device < 0 ? 0 : device;  // a CPU has no number
  // Of a storage without memory the address is NULL, and the tensor's so many elements further.
  result->data = (uintptr_t)data == (uintptr_t)g.offset * 2 ? NULL : data;
  if (g.dim < 1 || g.dim > MAX_LEADING + 1) return NOT_A_MATRIX;
  const int count = (int)g.dim - 1;
  result->leading_count = count;
  result->cols = g.sizes[count];
  result->col_stride = g.strides[count];
  result->batches = 1, result->step = 0;
  return count ? MATRIX : NOT_A_MATRIX;
}

matrix_kind tensor_view(const tensor_reader *reader, void *tensor, int to_write, matrix *result) {
  geometry g;
  const matrix_kind kind = begin_view(reader, tensor, to_write, &g, result);
  if (kind != MATRIX) return kind;
  if (result->leading_count == 1) {
    result->rows = result->leading[0] = g.sizes[0];
    result->row_stride = g.strides[0];
    return MATRIX;
  }
  return fold(g.sizes, g.strides, result->leading_count, result) ? MATRIX : NOT_FOLDABLE;
}

matrix_kind tensor_view_batch(const tensor_reader *reader, void *tensor, int to_write,
                              matrix *result) {
  geometry g;
  const matrix_kind kind = begin_view(reader, tensor, to_write, &g, result);
  if (kind != MATRIX) return kind;
  const int last = result->leading_count - 1;
  if (!last) return NOT_A_MATRIX;
  if (!fold(g.sizes, g.strides, last, result)) return NOT_FOLDABLE;
  result->batches = result->rows, result->step = result->row_stride;
  result->rows = result->leading[last] = g.sizes[last];
  result->row_stride = g.strides[last];
  return MATRIX;
}

matrix_kind block_view(const tensor_reader *r, PyObject *object, int element, block *result) {
  void *const tensor = tensor_in(r, object);
  const uint64_t keys = keys_of(r, tensor);
  const void *data;
  geometry g;
  if (keys != r->ordinary[0] && keys != r->ordinary[1])
    return r->get_device_type(tensor, &g.type) || g.type == r->device_type ? NOT_VIEWABLE
                                                                           : ELSEWHERE;
  if (read_geometry(r, tensor, &g) || r->get_device(tensor, &result->device) ||
      r->get_data(tensor, &data))
    return NOT_VIEWABLE;
  if (g.dim < 1 || g.dim > 3) return NOT_A_MATRIX;
  // A CPU has no number. Of a storage without memory the address is the offset alone.
  if (result->device < 0) result->device = 0;
  result->data = (intptr_t)data == g.offset * element ? NULL : (char *)(uintptr_t)data;
  result->dim = g.dim, result->type = g.type;
  memcpy(result->sizes, g.sizes, (size_t)g.dim * sizeof *g.sizes);
  memcpy(result->strides, g.strides, (size_t)g.dim * sizeof *g.strides);
  return MATRIX;
}

double tensor_work(const tensor_reader *reader, PyObject *a, PyObject *b) {
  void *const x = tensor_in(reader, a), *const y = tensor_in(reader, b);
  geometry g, h;
  if (keys_of(reader, x) != reader->ordinary[0] || keys_of(reader, y) != reader->ordinary[0] ||
      read_geometry(reader, x, &g) || read_geometry(reader, y, &h) || h.dim != 2)
    return 0;
  double work = 2.0 * (double)h.sizes[0] * (double)h.sizes[1];
  for (int i = 0; i + 1 < g.dim; i++)
    work *= (double)g.sizes[i];
  return work;
}

int tensor_requires_grad(const tensor_reader *reader, PyObject *tensor) {
  return reader->requires_grad ? reader->requires_grad(inside(tensor_in(reader, tensor))) : -1;
}

int matrix_claim(const tensor_reader *reader, void *tensor, matrix *m) {
  void *data;
  if (reader->get_data_to_write(tensor, &data)) return -1;
  m->data = data;
  return 0;
}

// Bytes from a matrix's first element to behind its last.
static uintptr_t reach(const matrix *m) {
  return ((uintptr_t)(m->rows - 1) * (uintptr_t)m->row_stride +
          (uintptr_t)(m->cols - 1) * (uintptr_t)m->col_stride +
          (uintptr_t)(m->batches - 1) * (uintptr_t)m->step + 1) *
         2;
}

int matrix_overlap(const matrix *x, const matrix *y) {
  const uintptr_t from_x = (uintptr_t)x->data, from_y = (uintptr_t)y->data;
  return from_x < from_y + reach(y) && from_y < from_x + reach(x);
}
