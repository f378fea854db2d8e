// Functions of ours at torch's operators that torch's C shim has no words for: those with numbers
// among their arguments. They are put there as C++ would do it, by what torch exports to C++, and
// called as C++ calls them.
//
// No promise covers how C++ lays such things out, so torch is asked what it makes of ours before
// anything is registered, and a torch that answers otherwise keeps these operators.
#ifndef HGP_DISPATCHER_H
#define HGP_DISPATCHER_H

#include <stdint.h>

// An operator's function for calls whose arguments lie on a stack: (functor, operator, dispatch
// keys, stack).
typedef void (*boxed_function)(void *functor, const void *op, uint64_t keys, void *stack);

// torch's own, which runs such calls.
typedef struct {
  void *functor;
  boxed_function function;
} boxed_kernel;

// A C++ object of torch's as its caller sees it: large enough that C, too, returns it in memory.
typedef struct {
  _Alignas(16) void *words[8];
} cpp_object;

// An argument on such a stack, a c10::IValue. Where it is a tensor, its address is that of a C++
// tensor.
typedef struct {
  uint64_t payload;
  uint32_t kind;
} argument;

// A c10::Scalar.
typedef struct {
  int32_t kind;
  union {
    double real;
    int64_t whole;
    _Alignas(16) char room[16];
  } value;
} number;

// Whether this torch, and this machine, have what `dispatcher_put` and `number_is` take; to be
// asked first.
int dispatcher_bind(void);

// Puts at an operator `name` of `library`, (Tensor, Scalar, Scalar, bool) -> Tensor, what learns
// how arguments lie on a stack from a call with any tensor, 3, 0.5 and True.
void dispatcher_put_lesson(void *library, const char *name);

// Puts `function` at the operator aten::`name` for a dispatch key; `library` is of the C shim.
// Calls with a stack reach `boxed`, for which torch's own kernel is kept in `own`. 0, or -1 where
// torch has none there that both kinds of calls reach.
int dispatcher_put(void *library, const char *name, uint16_t key, void *function,
                   boxed_function boxed, boxed_kernel *own);

// Whether a number of torch's is this one.
int number_is(const number *x, int value);

// The last `count` arguments on a stack; NULL where nobody has learned how they lie there.
argument *stack_arguments(void *stack, int count);

// Makes the first of these the last on the stack: a call has returned it.
void stack_return(void *stack, const argument *first);

int argument_is_tensor(const argument *x);

// Its number, as a function that is called without a stack gets it. -1 where it is none, or of a
// kind that no kernel knows.
int argument_number(const argument *x, number *result);

#endif
