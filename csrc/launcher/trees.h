// Times of kernels and of torch for problems that nobody measured: features of a problem and a
// kernel, sums of regression trees over them, and the candidate that promises most. Python reads
// these from a pack (hgemm_packs/pack/predictor.py); C evaluates them.
#ifndef HGP_TREES_H
#define HGP_TREES_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

// predictor(sm_count, gbps, candidates, ours, torch, doubt): what `predict` asks. `candidates` is
// the bytes of int32, CANDIDATE_WORDS each; a model (base, roots, features, numbers, rights), the
// last four the bytes of int32, int32, double and int32. Raises ValueError for trees that do not
// end.
PyObject *predictor_py(PyObject *module, PyObject *args);

// predict(predictor, m, n, k, layout, dtype): (candidate, ours, torch, doubt), of the candidate
// with the least time; None where none takes the problem. Of times it is the logarithm over the
// floor.
PyObject *predict_py(PyObject *module, PyObject *args);

// features(predictor, candidate, m, n, k, layout, dtype): what the trees see, a float each.
PyObject *features_py(PyObject *module, PyObject *args);

// floor_us(predictor, m, n, k): the time that both logarithms are over.
PyObject *floor_us_py(PyObject *module, PyObject *args);

// feature_names(): the names of `features`, those of a problem alone first.
PyObject *feature_names_py(PyObject *module, PyObject *unused);

#endif
