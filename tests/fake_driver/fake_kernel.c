// The stand-in driver's launches: see fake_cuda.c. Products are accumulated in double and rounded
// once, so that a test may ask for the correctly rounded result.
#include "fake_cuda.h"

static double half_value(uint16_t bits, int bf16) {
  if (bf16) {
    const uint32_t word = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &word, sizeof value);
    return value;
  }
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const double sign = bits >> 15 ? -1 : 1;
  if (exponent == 31) return mantissa ? NAN : sign * INFINITY;
  return sign * (exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24));
}

// Rounds to nearest even at the precision that the exponent leaves.
static uint16_t half_bits(double value, int bf16) {
  const int digits = bf16 ? 8 : 11, least = bf16 ? -126 : -14, bias = bf16 ? 127 : 15;
  const double largest = ldexp(2 - ldexp(1, 1 - digits), bias);
  const uint16_t sign = signbit(value) ? 0x8000 : 0, infinity = bf16 ? 0x7f80 : 0x7c00;
  if (isnan(value)) return infinity | 1 << (digits - 2);
  double size = fabs(value);
  int exponent = size > 0 && isfinite(size) ? ilogb(size) : least;
  if (exponent < least) exponent = least;
  const double unit = ldexp(1, exponent - digits + 1);
  if (isfinite(size)) size = rint(size / unit) * unit;
  if (size > largest) return sign | infinity;
  if (size >= ldexp(1, exponent + 1)) exponent++;
  const int subnormal = size < ldexp(1, least);
  const uint32_t steps = (uint32_t)ldexp(size, digits - 1 - exponent);
  if (subnormal) return sign | (uint16_t)steps;
  return sign | (uint16_t)((uint32_t)(exponent + bias) << (digits - 1)) |
         (uint16_t)(steps & ((1u << (digits - 1)) - 1));
}

// One operand of a launch: a pointer with a leading stride, or a tensor map.
typedef struct {
  uint16_t *data;
  int64_t lead;
  fake_map map;
} operand;

// Element at `outer`, `inner` in storage; a rank-4 map interleaves each group of 32 rows,
// or the two halves of them.
static uint16_t *element(const operand *x, int64_t outer, int64_t inner) {
  if (!x->map.magic) return x->data + outer * x->lead + inner;
  const fake_map *m = &x->map;
  int64_t offset = outer * (int64_t)m->strides[0];
  if (m->rank == 4 && m->dims[2] == 2) {
    const int64_t half = 8 * (int64_t)m->dims[3], row = outer % half;
    offset = row % 8 * (int64_t)m->strides[0] + outer / half * (int64_t)m->strides[1] +
             row / 8 * (int64_t)m->strides[2];
  } else if (m->rank == 4) {
    const int64_t row = outer % 32;
    offset = row / 4 * (int64_t)m->strides[0] + row % 4 * (int64_t)m->strides[1] +
             outer / 32 * (int64_t)m->strides[2];
  }
  return (uint16_t *)((char *)(uintptr_t)m->address + offset) + inner;
}

static int covers(const operand *x, int64_t outer, int64_t inner) {
  const fake_map *m = &x->map;
  if (!m->magic) return 1;
  if (m->rank == 3 && m->box[2] != 1) return 0;
  const int64_t rows = m->rank == 4 ? (int64_t)m->dims[1] * m->dims[2] * m->dims[3] : m->dims[1];
  return m->magic == FAKE_MAP_MAGIC && m->dims[0] == inner && rows == outer;
}

// How many products a launch is of, where its maps have a third dimension; 0 where they disagree.
static int64_t batches_of(const operand x[3]) {
  const int64_t batches = x[0].map.rank == 3 ? x[0].map.dims[2] : 1;
  for (int i = 1; i < 3; i++)
    if (x[i].map.magic && (x[i].map.rank == 3 ? (int64_t)x[i].map.dims[2] : 1) != batches) return 0;
  return batches;
}

// To the matrices of the next product.
static void step_on(operand x[3], int64_t m, int64_t n) {
  for (int i = 0; i < 3; i++)
    if (x[i].map.magic)
      x[i].map.address += x[i].map.strides[1];
    else
      x[i].data += m * n;
}

// Reads the parameters as csrc/kernels declares them, by the number of tensor maps in front and the
// sizes of what follows.
static int read_params(const fake_function *f, void **params, operand x[3], uint32_t **parts,
                       int32_t mnk[3], const uint16_t **addend, int64_t *batches) {
  int maps = 0, next = 3;
  while (maps < 3 && maps < f->count && f->sizes[maps] == 128)
    maps++;
  for (int i = 0; i < 3; i++) {
    if (i < maps)
      memcpy(&x[i].map, params[i], sizeof x[i].map);
    else
      memcpy(&x[i].data, params[i], sizeof x[i].data);
  }
  *parts = NULL;
  if (maps && next < f->count && f->sizes[next] == 8) memcpy(parts, params[next++], 8);
  for (int i = 0; i < 3; i++)
    memcpy(&mnk[i], params[next++], 4);
  for (int i = maps; i < 3; i++) {
    int32_t lead;
    memcpy(&lead, params[next++], 4);
    x[i].lead = lead;
  }
  *addend = NULL;
  if (next < f->count && f->sizes[next] == 8) memcpy(addend, params[next++], 8);
  int32_t told = 1;
  if (next == f->count - 1 && f->sizes[next] == 4) memcpy(&told, params[next++], 4);
  *batches = batches_of(x);
  return next == f->count && told == *batches;
}

// Each half of K is a partial sum on its way through memory; a CTA has as much of a workspace as
// that takes, and there is one at least.
enum { HALVES = 2, SUM_WORDS = HALVES * sizeof(double) / 4 };

// What a kernel wants of its workspace, if it has one: 0 when its words were not all absent.
static int check_absent(const uint32_t *parts, uint32_t ctas) {
  control.parts = (void *)parts;
  if ((uintptr_t)parts % 16) return 0;
  for (uint32_t i = 0; parts && i < SUM_WORDS * ctas; i++)
    if (parts[i] != UINT32_MAX) return 0;
  return 1;
}

// Element i, j of the product, by way of the workspace if there is one.
static double sum_of(const fake_function *f, const operand x[3], uint32_t *parts, int64_t i,
                     int64_t j, int64_t k) {
  const int ta = f->layout[0] == 't', tb = f->layout[1] == 't', bf16 = f->dtype[0] == 'b';
  double own[HALVES] = {0}, *sums = parts ? (double *)parts : own;
  memset(sums, 0, sizeof own);
  for (int64_t p = 0; p < k; p++)
    sums[p % HALVES] += half_value(*(ta ? element(&x[0], p, i) : element(&x[0], i, p)), bf16) *
                        half_value(*(tb ? element(&x[1], j, p) : element(&x[1], p, j)), bf16);
  return sums[0] + sums[1];
}

static double activate(const char *epilogue, double x) {
  const double inner = sqrt(8 / acos(-1)) / 2 * (x + 0.044715 * x * x * x);
  if (!strcmp(epilogue, "bias_relu")) return x < 0 ? 0 : x;
  if (!strcmp(epilogue, "bias_gelu")) return x / 2 * (1 + erf(x / sqrt(2)));
  if (!strcmp(epilogue, "bias_gelu_tanh")) return x / 2 * (1 + tanh(inner));
  if (!strcmp(epilogue, "bias_silu")) return x / (1 + exp(-x));
  return x;
}

// A grouped product: rows of A from one end to the next, each group times a matrix of its own,
// which is the third dimension of B's map. What a box brings from beyond a matrix is 0 on a device,
// too.
static int compute_grouped(const fake_function *f, void **params) {
  operand x[3] = {0};
  int32_t m, n, k, groups;
  const int32_t *ends;
  memcpy(&x[0].map, params[0], sizeof x[0].map);
  memcpy(&x[1].map, params[1], sizeof x[1].map);
  memcpy(&x[2].data, params[2], sizeof x[2].data);
  memcpy(&m, params[3], 4), memcpy(&n, params[4], 4), memcpy(&k, params[5], 4);
  memcpy(&ends, params[7], sizeof ends), memcpy(&groups, params[8], 4);
  int32_t lead;
  memcpy(&lead, params[6], 4);
  x[2].lead = lead;
  const fake_map *b = &x[1].map;
  const int tb = f->layout[1] == 't', bf16 = f->dtype[0] == 'b';
  if (!covers(&x[0], m, k) || !covers(&x[1], tb ? n : k, tb ? k : n) || b->rank != 3 ||
      b->dims[2] != (uint32_t)groups || b->box[2] != 1)
    return 0;
  for (int32_t group = 0, from = 0; group < groups; group++) {
    const int32_t end = ends[group] < 0 ? 0 : ends[group] > m ? m : ends[group];
    operand own = x[1];
    own.map.address += (uint64_t)group * b->strides[1];
    const operand parts[3] = {x[0], own, x[2]};
    for (int64_t i = from; i < end; i++)
      for (int64_t j = 0; j < n; j++)
        *element(&x[2], i, j) = half_bits(sum_of(f, parts, NULL, i, j, k), bf16);
    from = end;
  }
  return 1;
}

// One product: all of C.
static void compute_one(const fake_function *f, const operand x[3], uint32_t *parts, int64_t m,
                        int64_t columns, int64_t k, const uint16_t *addend) {
  const int bf16 = f->dtype[0] == 'b', gated = !strcmp(f->epilogue, "gated_silu");
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < columns; j++) {
      double value = sum_of(f, x, parts, i, j, k);
      if (gated)
        value = value / (1 + exp(-value)) * sum_of(f, x, parts, i, j + columns, k);
      else if (addend)
        value += half_value(addend[strcmp(f->epilogue, "residual") ? j : i * columns + j], bf16);
      *element(&x[2], i, j) = half_bits(activate(f->epilogue, value), bf16);
    }
}

static int is_grouped(const fake_function *f, void **params) {
  fake_map a;
  if (f->count != 9 || f->sizes[8] != 4 || f->sizes[7] != 8) return 0;
  memcpy(&a, params[0], sizeof a);
  return a.rank == 2;
}

static int compute(const fake_function *f, void **params, uint32_t ctas) {
  if (is_grouped(f, params)) return compute_grouped(f, params);
  operand x[3] = {0};
  int64_t batches;
  uint32_t *parts;
  int32_t mnk[3];
  const uint16_t *addend;
  if (!read_params(f, params, x, &parts, mnk, &addend, &batches) || !check_absent(parts, ctas))
    return 0;
  const int64_t m = mnk[0], n = mnk[1], k = mnk[2];
  const int64_t columns = strcmp(f->epilogue, "gated_silu") ? n : n / 2;  // of C
  const int ta = f->layout[0] == 't', tb = f->layout[1] == 't';
  if (!covers(&x[0], ta ? k : m, ta ? m : k) || !covers(&x[1], tb ? n : k, tb ? k : n) ||
      !covers(&x[2], m, columns))
    return 0;
  for (; batches; batches--, step_on(x, m, n), addend += addend ? m * n : 0)
    compute_one(f, x, parts, m, columns, k, addend);
  if (parts) memset(parts, 0xff, sizeof(double[HALVES]));
  if (parts) memset(parts, 0, 4 * (size_t)control.dirty);
  return 1;
}

static int read_attributes(const cu_launch_config *config) {
  control.cluster = 1;
  control.pdl = control.cooperative = 0;
  for (uint32_t i = 0; i < config->attribute_count; i++) {
    const cu_launch_attribute *attribute = &config->attributes[i];
    if (attribute->id == CU_ATTR_CLUSTER)
      control.cluster = attribute->value.cluster[0];
    else if (attribute->id == CU_ATTR_PDL)
      control.pdl = (uint32_t)attribute->value.flag;
    else if (attribute->id == CU_ATTR_COOPERATIVE)
      control.cooperative = (uint32_t)attribute->value.flag;
    else
      return 0;
  }
  return 1;
}

static void capture(cu_function function, void **params) {
  static unsigned made;
  const fake_function *f = function;
  fake_node *node = &fake_nodes[made++ % FAKE_NODES];
  node->function = function;
  node->count = control.node_count;
  node->programmatic = (int)control.pdl;
  memcpy(node->before, control.nodes, sizeof node->before);
  for (int i = 0; i < f->count; i++) {
    node->params[i] = node->values[i];
    memcpy(node->values[i], params[i], (size_t)f->sizes[i]);
  }
  control.nodes[0] = node;
  control.node_count = 1;
}

cu_result cuLaunchKernelEx(const cu_launch_config *config, cu_function function, void **params,
                           void **extra) {
  const fake_function *f = function;
  if (control.noop) return CU_OK;
  if (f->context != fake_current()) return FAKE_INVALID_CONTEXT;
  if (control.capturing == FAKE_INVALIDATED) return CU_CAPTURE_FIRST_ERROR + 1;
  if (control.fail_launches > 0) {
    control.fail_launches--;
    return FAKE_LAUNCH_FAILED;
  }
  if (extra || !f->loaded || !read_attributes(config) ||
      (int)config->smem_bytes > f->max_dynamic_smem || (int)config->block[0] > f->threads ||
      config->grid[0] % control.cluster || (control.cluster > 8 && !f->non_portable))
    return CU_INVALID_VALUE;
  control.grid = config->grid[0] * config->grid[1];
  control.block = config->block[0];
  control.smem_bytes = config->smem_bytes;
  control.stream = config->stream;
  control.launches++;
  if (control.capturing) capture(function, params);
  return compute(f, params, config->grid[0] * config->grid[1]) ? CU_OK : CU_INVALID_VALUE;
}
