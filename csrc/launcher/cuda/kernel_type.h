// hgemm_packs._C.Kernel, the Python handle of a loaded kernel, and the two functions that make and
// use one directly: load and launch.
#ifndef HGP_KERNEL_TYPE_H
#define HGP_KERNEL_TYPE_H

#include "state.h"

int kernel_type_add(PyObject *module);

// The loaded kernel behind a Kernel, or NULL with a TypeError set.
const loaded_kernel *kernel_of(const launcher_state *state, PyObject *object);

PyObject *kernel_load_py(PyObject *module, PyObject *args, PyObject *kwargs);
PyObject *kernel_launch_py(PyObject *module, PyObject *const *args, Py_ssize_t count);

#endif
