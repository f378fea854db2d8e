// hgemm_packs.matmul itself, and the same for a layer, input @ weight.t(): who runs a call, one of
// our kernels (run.c) or torch (torch/).
#ifndef HGP_MATMUL_H
#define HGP_MATMUL_H

#include "state.h"

PyObject *matmul_py(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names);
PyObject *linear_py(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names);

#endif
