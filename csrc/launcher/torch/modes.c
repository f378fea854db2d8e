#include "torch/modes.h"

#include <dlfcn.h>
#include <string.h>

static const char KEYS[] = "_ZN3c104impl26raw_local_dispatch_key_setE";
static const char GRAD_ENABLED[] = "_ZN3c108GradMode10is_enabledEv";
static const char INFERENCE[] = "_ZN3c1013InferenceMode10is_enabledEv";
static const char FUNCTION_MODES[] = "_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv";

// This thread's instance of torch's thread-local key set: included and excluded keys.
static _Thread_local key_set *keys;

static void probe_bind(probe *p, PyObject *function, PyObject *quiet, PyObject *argument) {
  Py_INCREF(function);
  Py_INCREF(quiet);
  Py_XINCREF(argument);
  *p = (probe){.function = function, .quiet = quiet, .argument = argument};
  if (Py_TYPE(function) != &PyCFunction_Type) return;
  // METH_COEXIST only says how a type's method table is filled.
  const int flags = PyCFunction_GetFlags(function) & ~METH_COEXIST;
  if (flags != (argument ? METH_O : METH_NOARGS)) return;
  p->direct = PyCFunction_GetFunction(function);
  p->self = PyCFunction_GetSelf(function);
}

static int probe_quiet(const probe *p) {
  // The quiet answers are singletons (False, None, small integers), so identity decides.
  PyObject *answer = p->direct ? p->direct(p->self, p->argument)
                               : PyObject_CallFunctionObjArgs(p->function, p->argument, NULL);
  if (!answer) return -1;
  const int quiet = answer == p->quiet;
  Py_DECREF(answer);
  return quiet;
}

static void *loaded_symbol(void *library, const char *symbol) {
  return library ? dlsym(library, symbol) : NULL;
}

// Finds what the shortcut needs in libraries that torch has loaded; never loads one.
static void bind_shortcut(torch_modes *modes) {
  void *c10 = dlopen("libc10.so", RTLD_LAZY | RTLD_NOLOAD);
  void *torch = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  void *grad = loaded_symbol(c10, GRAD_ENABLED);
  void *inference = loaded_symbol(c10, INFERENCE);
  void *function = loaded_symbol(torch, FUNCTION_MODES);
  if (!grad || !inference || !function || !loaded_symbol(c10, KEYS)) return;
  memcpy(&modes->native_grad_enabled, &grad, sizeof grad);
  memcpy(&modes->native_inference, &inference, sizeof inference);
  memcpy(&modes->function_modes, &function, sizeof function);
  modes->c10 = c10;
}

int modes_bind(torch_modes *modes, PyObject *tuples, int covered, PyObject *grad_enabled) {
  const Py_ssize_t count = PyTuple_Size(tuples);
  if (count > MAX_PROBES || covered > count) PyErr_SetString(PyExc_ValueError, "too many probes");
  if (PyErr_Occurred()) return -1;
  *modes = (torch_modes){.covered = covered};
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject *function, *quiet, *argument = NULL;
    if (!PyArg_ParseTuple(PyTuple_GetItem(tuples, i), "OO|O", &function, &quiet, &argument))
      return -1;
    probe_bind(&modes->probes[modes->count++], function, quiet, argument);
  }
  probe_bind(&modes->grad_enabled, grad_enabled, Py_False, NULL);
  bind_shortcut(modes);
  return 0;
}

static key_set *thread_keys(const torch_modes *modes) {
  // dlsym of a thread-local variable gives the calling thread's instance.
  if (!keys) keys = dlsym(modes->c10, KEYS);
  return keys;
}

void modes_remember(torch_modes *modes) {
  if (!modes->c10 || modes->quiet_count == KEY_SETS) return;
  modes->quiet[modes->quiet_count++] = *thread_keys(modes);
}

// torch keeps what is excluded as its difference from what is by default; no key that is asked for
// here is excluded by default.
uint64_t modes_exclude(const torch_modes *modes, uint64_t dispatch_keys) {
  key_set *now = thread_keys(modes);
  const uint64_t excluded = now->words[1];
  now->words[1] |= dispatch_keys;
  return excluded;
}

void modes_restore(const torch_modes *modes, uint64_t excluded) {
  thread_keys(modes)->words[1] = excluded;
}

int modes_unwatched(const torch_modes *modes) {
  return modes->c10 && !modes->function_modes();
}

static int shortcut(const torch_modes *modes) {
  if (!modes_unwatched(modes)) return 0;
  const key_set *now = thread_keys(modes);
  for (int i = 0; i < modes->quiet_count; i++)
    if (now->words[0] == modes->quiet[i].words[0] && now->words[1] == modes->quiet[i].words[1])
      return 1;
  return 0;
}

int modes_quiet(const torch_modes *modes) {
  int quiet = 1;
  for (int i = shortcut(modes) ? modes->covered : 0; quiet == 1 && i < modes->count; i++)
    quiet = probe_quiet(&modes->probes[i]);
  return quiet;
}

int modes_inference(const torch_modes *modes) {
  return modes->c10 && modes->native_inference();
}

int modes_records(const torch_modes *modes) {
  return modes->c10 && modes->native_grad_enabled();
}

int modes_grad_enabled(const torch_modes *modes) {
  if (modes->native_grad_enabled) return modes->native_grad_enabled();
  const int quiet = probe_quiet(&modes->grad_enabled);
  return quiet < 0 ? -1 : !quiet;
}
