// From two to four Python objects to a problem: views, checks and the table key. Says which reason
// sends a call to torch; computes nothing that Python decides.
#ifndef HGP_PROBLEM_H
#define HGP_PROBLEM_H

#include "state.h"
#include "torch/tensor.h"

// What is computed of a product before it is rounded. X(enumerator, the name in packs and rows,
// what a launch depends on of it).
#define EPILOGUES(X)                                 \
  X(NONE, "none", EPILOGUE_NONE)                     \
  X(BIAS, "bias", EPILOGUE_BIAS)                     \
  X(BIAS_RELU, "bias_relu", EPILOGUE_BIAS)           \
  X(BIAS_GELU, "bias_gelu", EPILOGUE_BIAS)           \
  X(BIAS_GELU_TANH, "bias_gelu_tanh", EPILOGUE_BIAS) \
  X(BIAS_SILU, "bias_silu", EPILOGUE_BIAS)           \
  X(RESIDUAL, "residual", EPILOGUE_RESIDUAL)         \
  X(GATED_SILU, "gated_silu", EPILOGUE_GATED)

typedef enum {
#define FINISH_ENUM(name, text, kind) FINISH_##name,
  EPILOGUES(FINISH_ENUM)
#undef FINISH_ENUM
      FINISH_COUNT,
} finish;

extern const char *const FINISH_NAMES[FINISH_COUNT];
extern const epilogue_kind FINISH_KINDS[FINISH_COUNT];

typedef struct {
  problem_key key;
  geometry shape;
  matrix a, b, c;  // c: only with out
  finish finish;
  void *addend;       // that the kernel adds, or NULL
  int transposed[2];  // how A and B are stored
  int align[3];       // bytes of A, B and C: 16, 8, 4 or 2
  int packed;         // A and B
} problem;

// Whether it is a torch.Tensor or a Parameter, and of no class of its own: subclasses and
// FakeTensor have their own idea of matmul.
int is_tensor(const launcher_state *state, PyObject *object);

// Fills `result` and returns REASON_COUNT when a and b make a problem that the table can answer; a
// reason otherwise. Of a `linear` call b is the transpose of what is multiplied. Runs no Python. C
// is taken to be packed and aligned as its rows allow: a fallback then needs no look at out.
reason problem_describe(const launcher_state *state, PyObject *a, PyObject *b, int linear,
                        problem *result);

// Checks that `out` is what a kernel of `p` can write to that needs `bytes` of C's address and
// rows, and fills p->c and C's leading stride. REASON_COUNT when it is.
reason problem_out(const launcher_state *state, PyObject *out, int bytes, problem *p);

// The parts of these two, of C++ tensors: a view of one, or of a batch, a problem of a and b that
// are viewed, or of batches of as many, and whether C, viewed, can be written to. None needs the
// GIL.
reason problem_view(const launcher_state *state, void *tensor, matrix *result);
reason problem_view_batch(const launcher_state *state, void *tensor, matrix *result);
reason problem_of_views(int linear, problem *p);
reason problem_of_batches(problem *p);
reason problem_of_output(problem *p, int bytes);

// The view of what may be added, of a C++ tensor: a matrix, or a vector, whose leading_count is 0.
// 0 where it is neither. Needs no GIL.
int problem_view_addend(const launcher_state *state, void *tensor, matrix *result);

// Makes of `p`, a plain product, one with an epilogue, which adds what is viewed in `addend`, NULL
// for one that adds nothing: a packed vector of N for a bias, for a residual a matrix that is
// stored as a packed C, both at aligned addresses. REASON_COUNT when a kernel may compute that.
// Needs no GIL.
reason problem_finish(problem *p, finish how, const matrix *addend);

// The same of a Python object, NULL for none.
reason problem_finish_with(const launcher_state *state, PyObject *addend, finish how, problem *p);

// The epilogue of that name; -1 with a ValueError where there is none.
int finish_named(PyObject *name);

// Columns of C.
static inline int32_t problem_columns(const problem *p) {
  return FINISH_KINDS[p->finish] == EPILOGUE_GATED ? p->shape.n / 2 : p->shape.n;
}

// Whether torch adds `bias` to the product inside it: a vector of N, as torch.addmm takes it.
reason problem_bias(const launcher_state *state, PyObject *bias, const problem *p);

// Whether the call began in the batch-invariant mode, in which torch runs none: it ends so, too.
static inline int problem_is_invariant(const problem *p) {
  return (p->key.tag & INVARIANT_KEY) != 0;
}

// "nn", "nt", "tn" or "tt".
const char *problem_layout(const problem *p);

#endif
