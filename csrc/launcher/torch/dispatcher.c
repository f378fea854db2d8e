#include "torch/dispatcher.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

// c10::KernelFunction: how an operator's function is found. What follows stays 0 in ours.
typedef struct {
  boxed_kernel boxed;
  void *unboxed, *rest[5];
} kernel_function;

// std::optional<c10::impl::CppSignature>: none.
typedef struct {
  void *signature;
  uint64_t there;
} cpp_signature;

enum { REAL = 0, WHOLE = 1 };  // of a number's kinds, those that a kernel knows

// std::vector<c10::IValue>.
typedef struct {
  argument *first, *end, *limit;
} argument_stack;

// Of a torch::CppFunction, which nobody here looks into.
enum { FUNCTION_BYTES = 512 };

static struct {
  void *(*dispatcher)(void);
  cpp_object (*find)(void *dispatcher, const char *name, const char *overload);
  const void *(*kernel_of)(const void *entry, uint16_t key);
  cpp_object (*describe)(const void *kernel_function);
  void (*make)(void *made, kernel_function *from, cpp_signature signature, void **schema);
  void (*destroy)(void *made);
  void *(*put)(void *library, const char *name, void *function, int verify);
  cpp_object (*negate)(const void *scalar);
} torch;

static int is_described(const void *kernel, const char *wanted) {
  // A std::string: an address, a length, and where it has up to 15 characters itself these.
  const cpp_object said = torch.describe(kernel);
  const size_t length = strlen(wanted);
  return (uintptr_t)said.words[1] == length && !memcmp(&said.words[2], wanted, length);
}

static int is_negated(number given, number wanted) {
  number found;
  const cpp_object made = torch.negate(&given);
  memcpy(&found, &made, sizeof found);
  return found.kind == wanted.kind && found.value.whole == wanted.value.whole;
}

// What torch says of objects of ours, by which it is seen that it takes them for what they are.
static int check_layouts(void) {
  const kernel_function boxed = {.boxed.function = (boxed_function)(uintptr_t)16};
  const kernel_function unboxed = {.unboxed = (void *)(uintptr_t)16};
  const number whole = {WHOLE, {.whole = 3}}, minus = {WHOLE, {.whole = -3}};
  const number real = {REAL, {.real = 0.5}}, minus_real = {REAL, {.real = -0.5}};
  return is_described(&boxed, "boxed ") && is_described(&unboxed, "unboxed ") &&
         is_negated(whole, minus) && is_negated(real, minus_real);
}

int dispatcher_bind(void) {
  const struct {
    const char *name;
    void *function;
  } wanted[] = {
      {"_ZN3c1010Dispatcher13realSingletonEv", &torch.dispatcher},
      {"_ZN3c1010Dispatcher17findSchemaOrThrowEPKcS2_", &torch.find},
      {"_ZNK3c104impl13OperatorEntry23getKernelForDispatchKeyENS_11DispatchKeyE", &torch.kernel_of},
      {"_ZNK3c1014KernelFunction9dumpStateB5cxx11Ev", &torch.describe},
      {"_ZN5torch11CppFunctionC1EN3c1014KernelFunctionESt8optionalINS1_4impl12CppSignatureEE"
       "St10unique_ptrINS1_14FunctionSchemaESt14default_deleteIS8_EE",
       &torch.make},
      {"_ZN5torch11CppFunctionD1Ev", &torch.destroy},
      {"_ZNR5torch7Library5_implEPKcONS_11CppFunctionENS_17_RegisterOrVerifyE", &torch.put},
      {"_ZNK3c106ScalarngEv", &torch.negate},
  };
#ifndef __x86_64__
  return 0;  // elsewhere C++ says in another place where a tensor is to be returned
#endif
  void *const libraries[] = {dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD),
                             dlopen("libc10.so", RTLD_LAZY | RTLD_NOLOAD)};
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
    void *found = NULL;
    for (int j = 0; j < 2 && !found; j++)
      found = libraries[j] ? dlsym(libraries[j], wanted[i].name) : NULL;
    if (!found) return 0;
    memcpy(wanted[i].function, &found, sizeof found);
  }
  return check_layouts();
}

static void put(void *library, const char *name, kernel_function *from) {
  _Alignas(16) char made[FUNCTION_BYTES];
  void *schema = NULL;
  torch.make(made, from, (cpp_signature){0}, &schema);
  torch.put(library, name, made, 0);
  torch.destroy(made);
}

int dispatcher_put(void *library, const char *name, uint16_t key, void *function,
                   boxed_function boxed, boxed_kernel *own) {
  char full[64];
  const char *dot = strchr(name, '.');
  const int length = dot ? (int)(dot - name) : (int)strlen(name);
  snprintf(full, sizeof full, "aten::%.*s", length, name);
  const cpp_object op = torch.find(torch.dispatcher(), full, dot ? dot + 1 : "");
  const kernel_function *found = torch.kernel_of(op.words[0], key);
  if (!found || !is_described(found, "boxed unboxed ")) return -1;
  *own = found->boxed;
  put(library, name, &(kernel_function){.boxed.function = boxed, .unboxed = function});
  return 0;
}

int number_is(const number *x, int value) {
  if (x->kind == WHOLE) return x->value.whole == value;
  return x->kind == REAL && x->value.real == value;
}

// What arguments are marked as; `learned` last of all.
static struct {
  uint32_t tensor, whole, real;
  int learned;
} kinds;

// Called by torch, with the arguments that dispatcher.h says, which only a lesson is.
static void learn(void *functor, const void *op, uint64_t keys, void *stack) {
  (void)functor, (void)op, (void)keys;
  argument_stack *s = stack;
  const argument *x = s->end - 4;
  const double half = 0.5;
  const int right = s->end - s->first >= 4 && x[1].payload == 3 &&
                    !memcmp(&x[2].payload, &half, sizeof half) && (uint8_t)x[3].payload == 1;
  if (right) kinds.tensor = x[0].kind, kinds.whole = x[1].kind, kinds.real = x[2].kind;
  __atomic_store_n(&kinds.learned, right, __ATOMIC_RELEASE);
  s->end -= 3;  // numbers own nothing
}

void dispatcher_put_lesson(void *library, const char *name) {
  put(library, name, &(kernel_function){.boxed.function = learn});
}

argument *stack_arguments(void *stack, int count) {
  return __atomic_load_n(&kinds.learned, __ATOMIC_ACQUIRE) ? ((argument_stack *)stack)->end - count
                                                           : NULL;
}

void stack_return(void *stack, const argument *first) {
  ((argument_stack *)stack)->end = (argument *)first + 1;
}

int argument_is_tensor(const argument *x) {
  return x->kind == kinds.tensor;
}

int argument_number(const argument *x, number *result) {
  if (x->kind != kinds.whole && x->kind != kinds.real) return -1;
  result->kind = x->kind == kinds.whole ? WHOLE : REAL;
  memcpy(&result->value, &x->payload, sizeof x->payload);
  return 0;
}
