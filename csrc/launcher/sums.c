#include "sums.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "operator.h"
#include "torch/dispatcher.h"

// X(enumerator, torch's name, the rest of the name that C++ has for it on a kind of device).
#define EACH_SUM(X)                                                                               \
  X(ADDMM, "addmm", "5addmmERKNS_6TensorES3_S3_RKN3c106ScalarES7_")                               \
  X(BADDBMM, "baddbmm", "7baddbmmERKNS_6TensorES3_S3_RKN3c106ScalarES7_")                         \
  X(ACTIVATED, "_addmm_activation", "17_addmm_activationERKNS_6TensorES3_S3_RKN3c106ScalarES7_b") \
  X(ADDMM_OUT, "addmm.out", "9addmm_outERNS_6TensorERKS1_S4_S4_RKN3c106ScalarES8_")               \
  X(BADDBMM_OUT, "baddbmm.out", "11baddbmm_outERNS_6TensorERKS1_S4_S4_RKN3c106ScalarES8_")        \
  X(ACTIVATED_OUT, "_addmm_activation.out",                                                       \
    "21_addmm_activation_outERNS_6TensorERKS1_S4_S4_RKN3c106ScalarES8_b")

enum {
#define ENUM(sum, name, symbol) sum,
  EACH_SUM(ENUM)
#undef ENUM
      LAST,
};
_Static_assert((int)LAST == (int)SUMS, "sums.h counts them");

const char *const SUM_NAMES[SUMS] = {
#define NAME(sum, name, symbol) name,
    EACH_SUM(NAME)
#undef NAME
};

// A sum's operands as torch has them: beta * self + alpha * (a @ b). What
// C++ takes in addition, an activation, others never look at.
typedef struct {
  void *self, *a, *b;
  const number *beta, *alpha;
} sum;

typedef cpp_object (*sum_function)(const void *self, const void *a, const void *b,
                                   const number *beta, const number *alpha, bool use_gelu);
typedef void *(*sum_out_function)(void *out, const void *self, const void *a, const void *b,
                                  const number *beta, const number *alpha, bool use_gelu);

static union {
  void *found;
  sum_function make;
  sum_out_function write;
} torch[SUMS];

static boxed_kernel with_stack[SUMS];  // torch's own
static finish gelu;                    // what torch's activation is on our devices

// A kernel's result, or NULL where torch is to run the sum.
static void *serve(int which, const sum *x, bool use_gelu, void *out) {
  launcher_state *state = operator_program(x->a, x->b);
  if (!state) return NULL;
  const int activated = which == ACTIVATED || which == ACTIVATED_OUT;
  const int ignored = number_is(x->beta, 0);
  const operands of = {.a = x->a,
                       .b = x->b,
                       .out = out,
                       .batched = which == BADDBMM || which == BADDBMM_OUT,
                       .addend = x->self,
                       .ignored = ignored,
                       .scaled = !number_is(x->alpha, 1) || !(ignored || number_is(x->beta, 1)),
                       .biased = !activated ? FINISH_BIAS
                                 : use_gelu ? gelu
                                            : FINISH_BIAS_RELU};
  return operator_serve(state, &of);
}

// To where C++ wants the tensor that it is given back.
static void *give(int which, const sum *x, bool use_gelu, void *place) {
  void *made = serve(which, x, use_gelu, NULL);
  if (made) {
    operator_move(made, place);
    return place;
  }
  const cpp_object result = torch[which].make(x->self, x->a, x->b, x->beta, x->alpha, use_gelu);
  memcpy(place, &result, sizeof(void *));  // moved: nothing is left behind that C++ would destroy
  return place;
}

static void *fill(int which, const sum *x, bool use_gelu, void *out) {
  void *made = serve(which, x, use_gelu, out);
  return made ? made : torch[which].write(out, x->self, x->a, x->b, x->beta, x->alpha, use_gelu);
}

// What torch's dispatcher calls. Where a C++ function gives a tensor back, its caller says first of
// all where to; operator's functor and dispatch keys follow.
#define GIVES(sum_of, function)                                                                  \
  static void *function(void *place, void *functor, uint64_t keys, void *self, void *a, void *b, \
                        const number *beta, const number *alpha) {                               \
    (void)functor, (void)keys;                                                                   \
    return give(sum_of, &(sum){self, a, b, beta, alpha}, false, place);                          \
  }
#define WRITES(sum_of, function)                                                    \
  static void *function(void *functor, uint64_t keys, void *self, void *a, void *b, \
                        const number *beta, const number *alpha, void *out) {       \
    (void)functor, (void)keys;                                                      \
    return fill(sum_of, &(sum){self, a, b, beta, alpha}, false, out);               \
  }
GIVES(ADDMM, addmm)
GIVES(BADDBMM, baddbmm)
WRITES(ADDMM_OUT, addmm_out)
WRITES(BADDBMM_OUT, baddbmm_out)
#undef GIVES
#undef WRITES

static void *activated(void *place, void *functor, uint64_t keys, void *self, void *a, void *b,
                       const number *beta, const number *alpha, bool use_gelu) {
  (void)functor, (void)keys;
  return give(ACTIVATED, &(sum){self, a, b, beta, alpha}, use_gelu, place);
}

static void *activated_out(void *functor, uint64_t keys, void *self, void *a, void *b,
                           const number *beta, const number *alpha, bool use_gelu, void *out) {
  (void)functor, (void)keys;
  return fill(ACTIVATED_OUT, &(sum){self, a, b, beta, alpha}, use_gelu, out);
}

// A call whose arguments lie on a stack.
static void take_stack(int which, const void *op, uint64_t keys, void *stack) {
  const int has_gelu = which == ACTIVATED || which == ACTIVATED_OUT, has_out = which >= ADDMM_OUT;
  const int count = 5 + has_gelu + has_out;
  argument *x = stack_arguments(stack, count), *out = has_out && x ? &x[count - 1] : NULL;
  number beta, alpha;
  void *made = NULL;
  if (x && argument_is_tensor(&x[0]) && argument_is_tensor(&x[1]) && argument_is_tensor(&x[2]) &&
      (!out || argument_is_tensor(out)) && !argument_number(&x[3], &beta) &&
      !argument_number(&x[4], &alpha))
    made = serve(which, &(sum){&x[0], &x[1], &x[2], &beta, &alpha},
                 has_gelu && (uint8_t)x[5].payload, out);
  if (!made) {
    with_stack[which].function(with_stack[which].functor, op, keys, stack);
    return;
  }
  for (int i = 0; i < 3; i++)
    operator_drop(&x[i]);
  if (out)
    x[0] = *out;
  else
    operator_move(made, &x[0]);
  stack_return(stack, x);
}

#define WITH_STACK(sum_of, name, symbol)                                                  \
  static void boxed_##sum_of(void *functor, const void *op, uint64_t keys, void *stack) { \
    (void)functor;                                                                        \
    take_stack(sum_of, op, keys, stack);                                                  \
  }
EACH_SUM(WITH_STACK)
#undef WITH_STACK

int sums_bind(void *device, int on_cuda) {
  static const char *const REST[SUMS] = {
#define REST_OF(sum, name, symbol) symbol,
      EACH_SUM(REST_OF)
#undef REST_OF
  };
  char name[128];
  // As torch's kernels have it, by tanh on a GPU and by erf on a CPU.
  gelu = on_cuda ? FINISH_BIAS_GELU_TANH : FINISH_BIAS_GELU;
  for (int i = 0; i < SUMS; i++) {
    snprintf(name, sizeof name, "_ZN2at%s%s", on_cuda ? "4cuda" : "3cpu", REST[i]);
    if (!(torch[i].found = dlsym(device, name))) return 0;
  }
  return dispatcher_bind();
}

int sums_put(void *library, int which, uint16_t key) {
  static const struct {
    void *function;
    boxed_function boxed;
  } OURS[SUMS] = {
      [ADDMM] = {addmm, boxed_ADDMM},
      [BADDBMM] = {baddbmm, boxed_BADDBMM},
      [ACTIVATED] = {activated, boxed_ACTIVATED},
      [ADDMM_OUT] = {addmm_out, boxed_ADDMM_OUT},
      [BADDBMM_OUT] = {baddbmm_out, boxed_BADDBMM_OUT},
      [ACTIVATED_OUT] = {activated_out, boxed_ACTIVATED_OUT},
  };
  return dispatcher_put(library, SUM_NAMES[which], key, OURS[which].function, OURS[which].boxed,
                        &with_stack[which]);
}
