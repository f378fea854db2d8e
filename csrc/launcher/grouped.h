// Grouped products: rows of tokens in groups, each times a matrix of its own. Python decides who
// runs one (hgemm_packs/nn/grouped.py); here are what a call is, the launch, and the counters.
#ifndef HGP_GROUPED_H
#define HGP_GROUPED_H

#include "state.h"

// describe_grouped(tokens, weights, ends): (groups, T, N, K, layout, dtype, device), or the reason
// why no kernel may run it.
PyObject *grouped_describe_py(PyObject *module, PyObject *const *args, Py_ssize_t count);

// launch_grouped(kernel, tokens, weights, ends, out): runs this very kernel on the current stream.
PyObject *grouped_launch_py(PyObject *module, PyObject *const *args, Py_ssize_t count);

// fall_back_grouped(reason): counts a call that torch runs, and raises where that is forbidden.
PyObject *grouped_fall_back_py(PyObject *module, PyObject *name);

#endif
