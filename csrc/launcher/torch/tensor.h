// Tensors as matrices: what a call needs of a torch tensor, and how a matrix lies in memory,
// including the dimensions of size 1 whose strides mean nothing.
//
// Sizes, strides and addresses come from torch's C shim, functions for ahead-of-time compiled
// models that keep their ABI from version to version. Before, a tensor's dispatch keys have to be
// those of plain memory on our device: no negative bit, no tensor of zeros, nothing of functorch.
// Where they lie in it carries no promise, so Python looks for the place at the start
// (tensor_keys.py), and a torch in which it is not found runs every call itself. Sizes, strides,
// offset and type are read from their places too where Python has found those: five functions of
// the shim less a tensor, which were most of what a call without a kernel cost. DLPack's view of a
// tensor costs three times as much, takes freed memory for memory at a low address, knows no
// negative bit, and copies a copy-on-write tensor.
#ifndef HGP_TENSOR_H
#define HGP_TENSOR_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

enum { MAX_LEADING = 6 };  // leading dimensions of `x @ w` that are folded into rows

// How torch's tensors are read. Functions return 0, or else what they were to find is not there.
typedef struct {
  size_t tensor;  // bytes from a Python tensor to its C++ one, a pointer
  size_t keys;    // bytes from where that points to the dispatch keys
  // To the number of dimensions, behind which are sizes and strides; to the storage offset; to the
  // number of the type. All 0 where they are not known: the functions are asked.
  size_t dims, offset, type;
  uint64_t ordinary[2];  // keys of plain memory on our device; of such made in inference mode
  int32_t device_type, f16, bf16, i32;  // torch's numbers
  int32_t (*get_dim)(void *tensor, int64_t *);
  int32_t (*get_sizes)(void *tensor, int64_t **);
  int32_t (*get_strides)(void *tensor, int64_t **);
  int32_t (*get_offset)(void *tensor, int64_t *);
  int32_t (*get_type)(void *tensor, int32_t *);
  int32_t (*get_device_type)(void *tensor, int32_t *);
  int32_t (*get_device)(void *tensor, int32_t *);
  int32_t (*get_data)(void *tensor, const void **);
  int32_t (*get_data_to_write)(void *tensor, void **);
  bool (*requires_grad)(const void *inside);  // of torch's own C++ tensor; NULL where not found
} tensor_reader;

typedef struct {
  char *data;  // NULL where the storage has no memory
  int64_t rows, cols;
  int64_t row_stride, col_stride;  // elements
  int32_t device;
  int32_t type;       // of an element: DL_FLOAT (f16), DL_BFLOAT (bf16), others below 0
  int is_inference;   // made in inference mode
  int leading_count;  // 1 for a plain matrix
  int64_t leading[MAX_LEADING];
  int64_t batches, step;  // matrices, and elements from one to the next; 1 and 0 for one alone
} matrix;

typedef enum { MATRIX, ELSEWHERE, NOT_VIEWABLE, NOT_A_MATRIX, NOT_FOLDABLE } matrix_kind;

// Finds torch's functions and constants, for the device type of that DLPack number; the places and
// keys are the caller's to fill in. 0 where this torch has them not.
int reader_bind(tensor_reader *reader, int dl_device_type);

// torch's C++ tensor in a Python one, checked by the caller.
static inline void *tensor_in(const tensor_reader *reader, PyObject *object) {
  return (char *)object + reader->tensor;
}

// Views a C++ tensor as a matrix; leading dimensions are folded into rows where their strides allow
// it. A copy-on-write tensor becomes one of its own where the view is `to_write`. Of a vector its
// columns, type and device are read, though it is no matrix. Runs no Python, and needs none.
matrix_kind tensor_view(const tensor_reader *reader, void *tensor, int to_write, matrix *result);

// The same of three dimensions or more as a batch of matrices, whose leading dimensions are folded
// into one where their strides allow it; the size of that of rows is among `leading`, too.
matrix_kind tensor_view_batch(const tensor_reader *reader, void *tensor, int to_write,
                              matrix *result);

// `tensor_view` of a torch.Tensor, checked by the caller.
static inline matrix_kind matrix_view(const tensor_reader *reader, PyObject *object, int to_write,
                                      matrix *result) {
  return tensor_view(reader, tensor_in(reader, object), to_write, result);
}

// Up to three dimensions as they are, of a tensor that is not folded.
typedef struct {
  char *data;
  int64_t dim, sizes[3], strides[3];
  int32_t device;
  int32_t type;  // torch's number
} block;

// Views a torch.Tensor, checked by the caller, whose elements have so many bytes. MATRIX where it
// can be read; NOT_A_MATRIX above three dimensions.
matrix_kind block_view(const tensor_reader *reader, PyObject *object, int element, block *result);

// Whether a C++ tensor of any kind is float16 or bfloat16.
int tensor_is_half(const tensor_reader *reader, void *tensor);

// Makes a matrix viewed to be read one to be written: a copy on write is made now. -1 where torch
// has no memory for it.
int matrix_claim(const tensor_reader *reader, void *tensor, matrix *m);

// The smallest leading stride that the matrix could have, stored row by row or, when `transposed`,
// column by column.
static inline int64_t matrix_packed(const matrix *m, int transposed) {
  return transposed ? m->rows : m->cols;
}

// Its leading stride in that storage; 0 when it is not stored that way.
static inline int64_t matrix_lead(const matrix *m, int transposed) {
  const int64_t inner = transposed ? m->rows : m->cols, outer = transposed ? m->cols : m->rows;
  const int64_t step = transposed ? m->row_stride : m->col_stride;
  const int64_t lead = transposed ? m->col_stride : m->row_stride;
  if (inner != 1 && step != 1) return 0;
  if (outer == 1) return inner;
  return lead >= inner ? lead : 0;
}

// Floating-point operations of a product with a matrix `b`, either way round: 2*M*N*K, where all
// goes together. 0 where the two are not what a kernel reads.
double tensor_work(const tensor_reader *reader, PyObject *a, PyObject *b);

// 1 when gradients of it are wanted, 0 when not, -1 where torch is to be asked another way.
int tensor_requires_grad(const tensor_reader *reader, PyObject *tensor);

// Whether memory from the first to the last element of `x` and of `y` overlaps; no side and no
// stride is above INT32_MAX.
int matrix_overlap(const matrix *x, const matrix *y);

#endif
