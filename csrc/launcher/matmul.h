// hgemm_packs.matmul itself, and the same for a layer, input @ weight.t(): who runs a call, one of
// our kernels (run.c) or torch (torch/).
#ifndef HGP_MATMUL_H
#define HGP_MATMUL_H

#include "state.h"

PyObject *matmul_py(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names);
PyObject *linear_py(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names);

// addmm(input, mat1, mat2, *, out=None): torch.addmm, as matmul is torch.matmul, for compiled code.
PyObject *addmm_py(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names);

// fused_linear(input, weight, addend, epilogue): input @ weight.t() and the whole epilogue by one
// kernel, or None where none does that, or where torch would do more: a gradient, a mode. `addend`
// is None for an epilogue that adds nothing. Never torch's, never counted as torch's.
PyObject *fused_linear_py(PyObject *module, PyObject *const *args, Py_ssize_t count);

#endif
