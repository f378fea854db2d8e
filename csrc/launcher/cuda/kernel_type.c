#include "cuda/kernel_type.h"

#include <string.h>

#include "cuda/predecessor.h"
#include "cuda/workspace.h"
#include "problem.h"

typedef struct {
  PyObject_HEAD loaded_kernel kernel;
} kernel_object;

const loaded_kernel *kernel_of(const launcher_state *state, PyObject *object) {
  if (Py_TYPE(object) == state->kernel_type) return &((kernel_object *)object)->kernel;
  PyErr_SetString(PyExc_TypeError, "a Kernel from hgemm_packs.launcher.load is needed");
  return NULL;
}

static void kernel_free(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  PyObject_Free(self);
  Py_DECREF(type);
}

static PyObject *kernel_max_ctas(PyObject *self, void *closure) {
  (void)closure;
  return PyLong_FromLong(((kernel_object *)self)->kernel.max_ctas);
}

static PyObject *kernel_device(PyObject *self, void *closure) {
  (void)closure;
  return PyLong_FromLong(((kernel_object *)self)->kernel.device);
}

static PyObject *kernel_workspace(PyObject *self, PyObject *args) {
  const loaded_kernel *kernel = &((kernel_object *)self)->kernel;
  const long long each = kernel->record.workspace_bytes;
  long long m, n;
  int64_t y;
  if (!PyArg_ParseTuple(args, "LL", &m, &n)) return NULL;
  if (m < 1 || n < 1 || m > INT32_MAX || n > INT32_MAX)
    return PyErr_Format(PyExc_ValueError, "workspace: no %lldx%lld product", m, n);
  const long long ctas = each ? grid_of(kernel, 1, m, n, &y) : 0;
  // Nobody shall allocate what a launch then refuses.
  if (ctas > kernel->max_ctas)
    return PyErr_Format(PyExc_ValueError, TOO_MANY_CTAS, ctas, kernel->max_ctas);
  return PyLong_FromLongLong(ctas * each);
}

static PyObject *kernel_within(PyObject *self, PyObject *argument) {  // modules are never unloaded
  const loaded_kernel *kernel = &((kernel_object *)self)->kernel;
  const int together = placed_together(&kernel->record), most = kernel->max_ctas;
  const long n = PyLong_AsLong(argument);
  if (n < together || n > most)
    return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "%ld of %d CTAs", n, most);
  kernel_object *object = PyObject_New(kernel_object, Py_TYPE(self));
  if (object) object->kernel = *kernel, object->kernel.max_ctas = (int)(n / together * together);
  return (PyObject *)object;
}

static PyMethodDef KERNEL_METHODS[] = {
    {"workspace", kernel_workspace, METH_VARARGS,
     "workspace(m, n): bytes of workspace of an M x N product; 0 without one"},
    {"within", kernel_within, METH_O, "within(ctas): as on a device that runs so few at once"},
    {0},
};

static PyGetSetDef KERNEL_MEMBERS[] = {
    {"device", kernel_device, NULL, "device index the kernel is loaded on", NULL},
    {"max_ctas", kernel_max_ctas, NULL, "CTAs that can run on the device at once", NULL},
    {0},
};

static PyType_Slot KERNEL_SLOTS[] = {
    {Py_tp_dealloc, kernel_free},
    {Py_tp_getset, KERNEL_MEMBERS},
    {Py_tp_methods, KERNEL_METHODS},
    {Py_tp_doc, "A kernel loaded on one device; made by load()."},
    {0, NULL},
};

static PyType_Spec KERNEL_SPEC = {
    .name = "hgemm_packs._C.Kernel",
    .basicsize = sizeof(kernel_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = KERNEL_SLOTS,
};

int kernel_type_add(PyObject *module) {
  PyObject *type = PyType_FromModuleAndSpec(module, &KERNEL_SPEC, NULL);
  if (!type) return -1;
  state_of(module)->kernel_type = (PyTypeObject *)type;
  return PyModule_AddObjectRef(module, "Kernel", type);
}

static int read_params(const char *name, PyObject *sizes, launch_record *record) {
  for (int i = 0; i < PARAM_LAYOUTS; i++) {
    const param_layout_info *layout = &PARAM_LAYOUT[i];
    if (strcmp(layout->name, name)) continue;
    record->params = (param_layout)i;
    int agree = PyTuple_Size(sizes) == layout->count;
    for (int j = 0; agree && j < layout->count; j++)
      agree = PyLong_AsLong(PyTuple_GetItem(sizes, j)) == layout->sizes[j];
    if (agree) return 0;
    if (!PyErr_Occurred()) PyErr_Format(PyExc_ValueError, "param_sizes are not those of %s", name);
    return -1;
  }
  PyErr_Format(PyExc_ValueError, "parameter layout %s is not known to this launcher", name);
  return -1;
}

static int read_maps(PyObject *maps, launch_record *record) {
  const int count = PARAM_LAYOUT[record->params].maps;
  if (PyTuple_Size(maps) != count) {
    if (!PyErr_Occurred())
      PyErr_Format(PyExc_ValueError, "%s takes %d tensor maps", PARAM_LAYOUT[record->params].name,
                   count);
    return -1;
  }
  for (int i = 0; i < count; i++) {
    map_spec *spec = &record->maps[i];
    if (!PyArg_ParseTuple(PyTuple_GetItem(maps, i), "(II)iii", &spec->box[0], &spec->box[1],
                          &spec->swizzle, &spec->row_group, &spec->l2_promotion))
      return -1;
  }
  return 0;
}

static int read_epilogue(const char *name, launch_record *record) {
  if (!strcmp(name, "none"))
    record->epilogue = EPILOGUE_NONE;
  else if (!strcmp(name, "bias") || !strncmp(name, "bias_", 5))
    record->epilogue = EPILOGUE_BIAS;
  else if (!strcmp(name, "residual"))
    record->epilogue = EPILOGUE_RESIDUAL;
  else if (!strcmp(name, "gated_silu"))
    record->epilogue = EPILOGUE_GATED;
  else
    return PyErr_Format(PyExc_ValueError, "epilogue %s is not known to this launcher", name), -1;
  const int adds = record->epilogue == EPILOGUE_BIAS || record->epilogue == EPILOGUE_RESIDUAL;
  if (adds == PARAM_LAYOUT[record->params].addend) return 0;
  PyErr_Format(PyExc_ValueError, "%s has %s addend, the epilogue is %s",
               PARAM_LAYOUT[record->params].name, adds ? "no" : "an", name);
  return -1;
}

static int read_enums(const char *layout, const char *dtype, launch_record *record) {
  if (strlen(layout) != 2 || strspn(layout, "nt") != 2 ||
      (strcmp(dtype, "f16") && strcmp(dtype, "bf16"))) {
    PyErr_Format(PyExc_ValueError, "layout %s, dtype %s", layout, dtype);
    return -1;
  }
  record->transposed[0] = layout[0] == 't';
  record->transposed[1] = layout[1] == 't';
  record->dtype = dtype[0] == 'b' ? DL_BFLOAT : DL_FLOAT;
  return 0;
}

// Whether rows of A or B come in an order of their own.
static int maps_group(const launch_record *r) {
  return r->maps[0].row_group || r->maps[1].row_group;
}

// Divisors and factors of later arithmetic: zero or negative must not get past here.
static int check_record(const launch_record *r) {
  int good = r->block > 0 && r->smem_bytes >= 0 && r->slices > 0 && r->workspace_bytes >= 0;
  for (int i = 0; i < 2; i++)
    good = good && r->tile[i] > 0;
  for (int i = 0; i < 3; i++)
    good = good && r->cluster[i] > 0 && r->align[i] > 0 && r->dims[i].multiple_of > 0;
  if (!good) {
    PyErr_SetString(PyExc_ValueError, "a launch record needs positive numbers");
    return -1;
  }
  if (r->epilogue == EPILOGUE_GATED && r->dims[1].multiple_of % 2) {
    PyErr_SetString(PyExc_ValueError, "a gated kernel takes an even N");
    return -1;
  }
  const int plain = !r->transposed[0] && !maps_group(r);
  if (PARAM_LAYOUT[r->params].grouped && !(plain && r->persistent && cluster_size(r) == 1)) {
    PyErr_SetString(PyExc_ValueError, "a grouped kernel is persistent, of plain maps, no cluster");
    return -1;
  }
  const int alone = r->cluster[2] == 1 && !r->reads_ahead;
  if (PARAM_LAYOUT[r->params].batched && !(r->persistent && !maps_group(r) && alone)) {
    PyErr_SetString(
        PyExc_ValueError,
        "a batched kernel is persistent, of plain maps, splits no K, reads nothing ahead");
    return -1;
  }
  const int *each = r->cluster;
  // As many as a device takes. Each is looked at first, for their product may be no integer.
  if (each[0] > 16 || each[1] > 16 || each[2] > 16 || cluster_size(r) > 16) {
    PyErr_Format(PyExc_ValueError, "a cluster of %dx%dx%d CTAs, 16 at most", each[0], each[1],
                 each[2]);
    return -1;
  }
  const int has = PARAM_LAYOUT[r->params].workspace;
  if ((r->workspace_bytes > 0) == has && (r->slices > 1) == has && r->cooperative == has &&
      !(has && r->persistent))
    return 0;
  PyErr_Format(PyExc_ValueError, "%s: %d slices, %d bytes of workspace%s%s",
               PARAM_LAYOUT[r->params].name, r->slices, r->workspace_bytes,
               r->cooperative ? ", cooperative" : "", r->persistent ? ", persistent" : "");
  return -1;
}

PyObject *kernel_load_py(PyObject *module, PyObject *args, PyObject *kwargs) {
  static char *names[] = {"device",
                          "image",
                          "symbol",
                          "param_layout",
                          "param_sizes",
                          "maps",
                          "block",
                          "cluster",
                          "tile",
                          "slices",
                          "persistent",
                          "pdl",
                          "cooperative",
                          "reads_ahead",
                          "triggers_early",
                          "smem_bytes",
                          "workspace_bytes",
                          "layout",
                          "dtype",
                          "align",
                          "dims",
                          "epilogue",
                          NULL};
  launcher_state *state = state_of(module);
  loaded_kernel kernel = {0};
  launch_record *r = &kernel.record;
  dim_range *d = r->dims;
  PyObject *image, *sizes, *maps;
  const char *symbol, *params, *layout, *dtype, *epilogue;
  if (!PyArg_ParseTupleAndKeywords(
          args, kwargs, "$iSssO!O!i(iii)(ii)ipppppiiss(iii)((LLL)(LLL)(LLL))s", names,
          &kernel.device, &image, &symbol, &params, &PyTuple_Type, &sizes, &PyTuple_Type, &maps,
          &r->block, &r->cluster[0], &r->cluster[1], &r->cluster[2], &r->tile[0], &r->tile[1],
          &r->slices, &r->persistent, &r->pdl, &r->cooperative, &r->reads_ahead, &r->triggers_early,
          &r->smem_bytes, &r->workspace_bytes, &layout, &dtype, &r->align[0], &r->align[1],
          &r->align[2], &d[0].min, &d[0].max, &d[0].multiple_of, &d[1].min, &d[1].max,
          &d[1].multiple_of, &d[2].min, &d[2].max, &d[2].multiple_of, &epilogue) ||
      read_params(params, sizes, r) || read_maps(maps, r) || read_enums(layout, dtype, r) ||
      read_epilogue(epilogue, r) || check_record(r))
    return NULL;
  const gpu *device = state_device(state, kernel.device);
  if (!device) return NULL;
  // Without the GIL: a load may wait for a host callback that wants it. The caller holds `image`,
  // and what `device` points to never changes.
  const char *bytes = PyBytes_AsString(image);
  if (!bytes) return NULL;
  PyThreadState *thread = PyEval_SaveThread();
  const char *refusal = kernel_load(&state->driver, device, bytes, symbol, &kernel);
  PyEval_RestoreThread(thread);
  if (refusal) return PyErr_Format(PyExc_RuntimeError, "%s", refusal);
  if (predecessor_add(state, &kernel)) return PyErr_NoMemory();
  if (r->workspace_bytes && workspace_prepare(state, kernel.device)) return NULL;
  kernel_object *object = PyObject_New(kernel_object, state->kernel_type);
  if (object) object->kernel = kernel;
  return (PyObject *)object;
}

static int read_operands(const launcher_state *state, PyObject *const *args,
                         const loaded_kernel *kernel, matrix operands[3], geometry *shape) {
  static const char *const OPERANDS[] = {"a", "b", "out"};
  const int batched = PARAM_LAYOUT[kernel->record.params].batched;
  for (int i = 0; i < 3; i++) {
    matrix *m = &operands[i];
    const int good = PyObject_TypeCheck(args[i], (PyTypeObject *)state->torch.tensor) &&
                     (batched ? tensor_view_batch : tensor_view)(
                         &state->reader, tensor_in(&state->reader, args[i]), i == 2, m) == MATRIX;
    if (!good || m->leading_count != 1 + batched || m->device != kernel->device ||
        m->type != kernel->record.dtype || !m->data) {
      PyErr_Format(PyExc_ValueError, "%s must be a %d-D tensor of the kernel's dtype on device %d",
                   OPERANDS[i], 2 + batched, kernel->device);
      return -1;
    }
    const int64_t lead = matrix_lead(m, i < 2 && kernel->record.transposed[i]);
    if (!lead || lead > INT32_MAX || m->rows > INT32_MAX || m->cols > INT32_MAX ||
        m->batches > INT32_MAX || m->step > INT32_MAX) {
      PyErr_Format(PyExc_ValueError, "%s is not stored in the kernel's layout", OPERANDS[i]);
      return -1;
    }
    shape->ld[i] = (int32_t)lead;
    if (batched && i < 2) shape->step[i] = (int32_t)m->step;
  }
  const matrix *a = &operands[0], *b = &operands[1], *c = &operands[2];
  const int packed = !batched || (shape->ld[2] == c->cols && c->step == c->rows * c->cols);
  if (a->batches != b->batches || a->batches != c->batches || !packed || a->cols != b->rows ||
      c->rows != a->rows || b->cols > INT32_MAX ||
      c->cols != columns_of(&kernel->record, (int32_t)b->cols)) {
    PyErr_SetString(PyExc_ValueError, "the shapes of a, b and out do not fit");
    return -1;
  }
  shape->m = (int32_t)c->rows, shape->n = (int32_t)b->cols, shape->k = (int32_t)a->cols;
  shape->batches = batched ? (int32_t)a->batches : 0;
  return 0;
}

// The caller's own workspace, or one as for matmul where `given` is None. -1 with an exception.
static int find_workspace(launcher_state *state, const plan *run, PyObject *given, cu_stream stream,
                          workspace *result) {
  if (given == Py_None) {
    const workspace_found found =
        run->workspace_bytes ? workspace_take(state, run, stream, result) : WORKSPACE_READY;
    if (found == WORKSPACE_READY) return 0;
    if (found == WORKSPACE_NONE)
      PyErr_SetString(PyExc_RuntimeError, "launch: no workspace for this kernel");
    return -1;
  }
  unsigned long long parts;
  Py_ssize_t bytes;
  if (!PyArg_ParseTuple(given, "Kn", &parts, &bytes)) return -1;
  if (bytes < 0 || (size_t)bytes < run->workspace_bytes) {
    PyErr_Format(PyExc_ValueError, "a workspace of %zd bytes, not %zu", bytes,
                 run->workspace_bytes);
    return -1;
  }
  if (parts % 16) {
    PyErr_SetString(PyExc_ValueError, "a workspace is not aligned to 16 bytes");
    return -1;
  }
  result->parts = (void *)(uintptr_t)parts;
  return 0;
}

// The address of what a kernel with an addend adds; NULL for others. -1 with an exception.
static int read_addend(const launcher_state *state, PyObject *given, const loaded_kernel *kernel,
                       const geometry *shape, void **address) {
  const launch_record *record = &kernel->record;
  matrix addend = {0};
  *address = NULL;
  if ((given != Py_None) != PARAM_LAYOUT[record->params].addend) {
    PyErr_Format(PyExc_ValueError, "%s has %s addend", PARAM_LAYOUT[record->params].name,
                 given == Py_None ? "an" : "no");
    return -1;
  }
  if (given == Py_None) return 0;
  int good = PyObject_TypeCheck(given, (PyTypeObject *)state->torch.tensor);
  if (record->epilogue == EPILOGUE_RESIDUAL) {
    good = good && matrix_view(&state->reader, given, 0, &addend) == MATRIX &&
           addend.leading_count == (shape->batches ? 2 : 1) &&
           addend.leading[addend.leading_count - 1] == shape->m && addend.cols == shape->n &&
           addend.rows == (int64_t)shape->m * products_of(shape) &&
           matrix_lead(&addend, 0) == shape->n;
  } else {
    addend.leading_count = -1;
    good = good && matrix_view(&state->reader, given, 0, &addend) == NOT_A_MATRIX &&
           !addend.leading_count && addend.cols == shape->n &&
           (addend.cols == 1 || addend.col_stride == 1);
  }
  if (good && addend.device == kernel->device && addend.type == record->dtype && addend.data &&
      (uintptr_t)addend.data % 16 == 0) {
    *address = addend.data;
    return 0;
  }
  if (record->epilogue == EPILOGUE_RESIDUAL)
    PyErr_Format(PyExc_ValueError,
                 "addend must be a packed residual of %dx%d of the kernel's dtype on device %d, "
                 "aligned to 16 bytes",
                 shape->m, shape->n, kernel->device);
  else
    PyErr_Format(PyExc_ValueError,
                 "addend must be a packed bias of %d of the kernel's dtype on device %d, aligned "
                 "to 16 bytes",
                 shape->n, kernel->device);
  return -1;
}

PyObject *kernel_launch_py(PyObject *module, PyObject *const *args, Py_ssize_t count) {
  launcher_state *state = state_of(module);
  if (count != 6 || !state->exchange)
    return PyErr_Format(PyExc_TypeError,
                        "launch(kernel, a, b, out, workspace, addend) needs torch >= 2.10");
  const loaded_kernel *kernel = kernel_of(state, args[0]);
  matrix operands[3];
  geometry shape = {0};
  plan run;
  void *addend;
  if (!kernel || read_operands(state, args + 1, kernel, operands, &shape) ||
      read_addend(state, args[5], kernel, &shape, &addend))
    return NULL;
  void *const addresses[ADDRESSES] = {operands[0].data, operands[1].data, operands[2].data, addend};
  int pushed, eager;
  void *stream;
  workspace space = {0};
  const cu_driver *driver = &state->driver;
  const char *refusal = plan_make(driver, kernel, &shape, addresses, &run);
  if (refusal) return PyErr_Format(PyExc_ValueError, "%s", refusal);
  if (state->exchange->current_stream(state->device_type, kernel->device, &stream) ||
      find_workspace(state, &run, args[4], stream, &space))
    return NULL;
  cu_result result = device_enter(driver, run.context, &pushed);
  if (result == CU_OK) {
    // Whoever measures decides, but no order of launches may make a product wrong.
    if (run.pdl && run.reads_ahead && !may_depend(state, &run, addresses, stream, 1, &eager))
      run.pdl = 0, run.cluster = (uint32_t)cluster_size(&kernel->record);
    result = plan_run(driver, &run, addresses, shape.ld[2], space.parts, stream);
  }
  device_leave(driver, pushed);
  Py_XDECREF(space.owner);
  if (result != CU_OK)
    return PyErr_Format(PyExc_RuntimeError, "launch: %s", driver_error(driver, result));
  state->launches++;
  Py_RETURN_NONE;
}
