// Times of kernels and of torch for problems that nobody measured, by three sums of trees, and the
// candidate that promises most. Python reads these from a pack (hgemm_packs/pack/predictor.py); C
// evaluates them.
#ifndef HGP_PREDICTOR_H
#define HGP_PREDICTOR_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "feature_values.h"

typedef struct predictor predictor;

// The predictor in a capsule of Python's, and how many candidates it has; NULL with an exception
// set where it is none.
predictor *predictor_of(PyObject *capsule, Py_ssize_t *candidates);

// The candidate that runs a problem, or -1 where the predictor is sure of none. Runs no Python.
Py_ssize_t predictor_choose(predictor *p, const seen_problem *asked);

// predictor(sm_count, gbps, margin, candidates, ours, torch, doubt): what `predict` asks.
// `candidates` is the bytes of int32, CANDIDATE_WORDS each; a model (base, roots, features,
// numbers, rights), the last four the bytes of int32, int32, double and int32. Raises ValueError
// for trees that do not end.
PyObject *predictor_py(PyObject *module, PyObject *args);

// predict(predictor, m, n, k, layout, dtype): (candidate, ours, torch, doubt, given up), of the
// candidate with the least time; None where none takes the problem. Of times it is the logarithm
// over the floor. A problem is given up where the first trees had ours so far above torch's that
// the rest is not asked to decide.
PyObject *predict_py(PyObject *module, PyObject *args);

// features(predictor, m, n, k, layout, dtype, candidate): what the trees see, a float each.
PyObject *features_py(PyObject *module, PyObject *args);

// floor_us(predictor, m, n, k, layout, dtype): the time that both logarithms are over.
PyObject *floor_us_py(PyObject *module, PyObject *args);

#endif
