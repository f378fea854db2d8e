#include "cuda/launch.h"

#include <stdio.h>

#include "cuda/device.h"
#include "torch/dlpack.h"

#define REFUSE(...) (snprintf(refusal, sizeof refusal, __VA_ARGS__), refusal)

static char refusal[256];

static int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

static const char *check_shape(const loaded_kernel *kernel, const geometry *shape,
                               void *const addresses[3]) {
  const param_layout_info *layout = &PARAM_LAYOUT[kernel->record.params];
  if (layout->grouped != (shape->groups != 0))
    return REFUSE("%s is %s grouped product", layout->name, layout->grouped ? "of a" : "of no");
  if (layout->batched != (shape->batches != 0))
    return REFUSE("%s is %s batch", layout->name, layout->batched ? "of a" : "of no");
  if (shape->groups < 0 || shape->groups > MAX_GROUPS)
    return REFUSE("%d groups, of %d at most", shape->groups, MAX_GROUPS);
  static const char DIMS[] = "MNK", OPERANDS[] = "ABC";
  const int64_t sizes[3] = {shape->m, shape->n, shape->k};
  for (int i = 0; i < 3; i++) {
    const dim_range *range = &kernel->record.dims[i];
    if (sizes[i] < range->min || sizes[i] > range->max || sizes[i] % range->multiple_of)
      return REFUSE("%c=%lld: this kernel takes %lld to %lld in steps of %lld", DIMS[i],
                    (long long)sizes[i], range->min, range->max, range->multiple_of);
    const int align = kernel->record.align[i];
    const int32_t step = i < 2 ? shape->step[i] : 0;
    if (((uintptr_t)addresses[i] | (uintptr_t)shape->ld[i] * 2 | (uintptr_t)step * 2) %
        (uintptr_t)align)
      return REFUSE("%c is not aligned to %d bytes", OPERANDS[i], align);
  }
  return NULL;
}

cu_result encode_map(const cu_driver *driver, const launch_record *record, const geometry *shape,
                     int i, void *address, cu_tensor_map *map) {
  const map_spec *spec = &record->maps[i];
  const int32_t stored[3][2] = {
      {shape->k, shape->m}, {shape->n, shape->k}, {columns_of(record, shape->n), shape->m}};
  const int flip = i < 2 && record->transposed[i];
  const uint64_t inner = (uint64_t)stored[i][flip], outer = (uint64_t)stored[i][!flip];
  const uint64_t row = (uint64_t)shape->ld[i] * 2;
  static const uint32_t ONES[4] = {1, 1, 1, 1};
  uint32_t rank = 2, box[4] = {spec->box[0], spec->box[1]};
  uint64_t dims[4] = {inner, outer}, strides[3] = {row};
  if (shape->groups && i == 1) {
    // A box ends with its matrix: what lies beyond is 0, and not of the next group.
    rank = 3;
    dims[2] = (uint64_t)shape->groups, strides[1] = outer * row, box[2] = 1;
  } else if (shape->batches) {
    rank = 3;
    dims[2] = (uint64_t)shape->batches, box[2] = 1;
    strides[1] = i < 2 ? (uint64_t)shape->step[i] * 2 : outer * row;
  } else if (spec->row_group == 16) {
    // Rows of both halves arrive in turn, 8 at a time: an mma fragment holds gate and up of one
    // element of C in one thread, however the columns of the product are shared out.
    rank = 4;
    dims[1] = 8, dims[2] = 2, dims[3] = outer / 16;
    strides[0] = row, strides[1] = outer / 2 * row, strides[2] = 8 * row;
    box[1] = 8, box[2] = 2, box[3] = spec->box[1] / 16;
  } else if (spec->row_group) {
    // Row 4*i+j of each group of 32 arrives as row 8*j+i, so that a thread of an mma fragment
    // holds 8 neighbouring columns of C and can store 16 bytes straight from registers.
    rank = 4;
    dims[1] = 8, dims[2] = 4, dims[3] = outer / 32;
    strides[0] = 4 * row, strides[1] = row, strides[2] = 32 * row;
    box[1] = 8, box[2] = 4, box[3] = spec->box[1] / 32;
  }
  int swizzle = 0, promotion = 0;  // the driver's enums count 0, 32, 64, 128 and 0, 64, 128, 256
  for (int bytes = spec->swizzle; bytes >= 32; bytes /= 2)
    swizzle++;
  for (int bytes = spec->l2_promotion; bytes >= 64; bytes /= 2)
    promotion++;
  return driver->map_encode(map, record->dtype == DL_BFLOAT ? CU_TENSOR_BF16 : CU_TENSOR_F16, rank,
                            address, dims, strides, box, ONES, 0, swizzle, promotion, 0);
}

// Tiles that a CTA of a dependent grid may have for the grid to leave room to the next one.
enum { MOST_TILES = 3 };

// The most CTAs of a persistent grid of so many tiles. One that reads ahead leaves half of the room
// to the next, which reads meanwhile. Behind a grid that had all of an SM, though, its CTAs settle
// on the first SMs that become free, as many on each as fit, and the SMs left over wait as long as
// these work: with few tiles a CTA half of the room measured 1.00 to 1.07 of all of it in mixed
// chains, with four 0.97, with eight 0.87 to 0.97, with 31 0.8 (H200, 20 problems of small K).
static int64_t room_for(const loaded_kernel *kernel, int64_t tiles) {
  const launch_record *record = &kernel->record;
  if (!record->reads_ahead) return kernel->max_ctas;
  const int together = placed_together(record);
  const int64_t half = round_up(kernel->max_ctas, 2 * together) / 2;
  return record->pdl && tiles > MOST_TILES * half ? kernel->max_ctas : half;
}

int64_t grid_of(const loaded_kernel *kernel, int64_t batches, int64_t m, int64_t n, int64_t *y) {
  const launch_record *record = &kernel->record;
  const int64_t tiles_m =
      round_up(round_up(m, record->tile[0]) / record->tile[0], record->cluster[0]);
  const int64_t tiles_n =
      round_up(round_up(n, record->tile[1]) / record->tile[1], record->cluster[1]);
  // Kernels without tensor maps last about 2 us: two grid dimensions spare them a division.
  const int flat = PARAM_LAYOUT[record->params].maps > 0;
  *y = flat ? 1 : tiles_n;
  int64_t x = flat ? tiles_m * tiles_n : tiles_m;
  if (__builtin_mul_overflow(x, (int64_t)record->cluster[2] * record->slices, &x) ||
      __builtin_mul_overflow(x, batches, &x))
    x = INT64_MAX;
  if (!record->persistent) return x;
  const int64_t room = room_for(kernel, x);
  return x > room ? room : x;
}

// A thread that has touched no device, as one of autograd's may be, has no current context, and the
// driver encodes no map without one.
static const char *encode_maps(const cu_driver *driver, const loaded_kernel *kernel,
                               const geometry *shape, void *const addresses[ADDRESSES],
                               cu_tensor_map maps[MAX_MAPS]) {
  const launch_record *record = &kernel->record;
  const int count = PARAM_LAYOUT[record->params].maps;
  int pushed = 0;
  const char *why = NULL;
  cu_result code = count ? device_enter(driver, kernel->context, &pushed) : CU_OK;
  for (int i = 0; code == CU_OK && i < count; i++) {
    code = encode_map(driver, record, shape, i, addresses[i], &maps[i]);
    if (code != CU_OK) why = REFUSE("tensor map of %c: %s", "ABC"[i], driver_error(driver, code));
  }
  if (code != CU_OK && !why) why = REFUSE("context: %s", driver_error(driver, code));
  device_leave(driver, pushed);
  return why;
}

const char *plan_make(const cu_driver *driver, const loaded_kernel *kernel, const geometry *shape,
                      void *const addresses[ADDRESSES], plan *result) {
  const launch_record *record = &kernel->record;
  const char *reason = check_shape(kernel, shape, addresses);
  if (reason) return reason;
  int64_t rows, m = shape->m;
  // Only the device knows where groups end: at most each ends with a tile that is not full.
  if (shape->groups)
    m = (m / record->tile[0] + (m < shape->groups ? m : shape->groups)) * record->tile[0];
  const int64_t grid = grid_of(kernel, products_of(shape), m, shape->n, &rows);
  if (grid > INT32_MAX || rows > UINT16_MAX)
    return REFUSE("a grid of %lld x %lld CTAs", (long long)grid, (long long)rows);
  if (record->cooperative && grid > kernel->max_ctas)
    return REFUSE(TOO_MANY_CTAS, (long long)grid, kernel->max_ctas);
  const int together = placed_together(record);
  *result = (plan){.function = kernel->function,
                   .context = kernel->context,
                   .shape = *shape,
                   .device = kernel->device,
                   .params = record->params,
                   .grid = {(uint32_t)grid, (uint32_t)rows},
                   .block = (uint32_t)record->block,
                   .cluster = (uint32_t)(grid % together ? cluster_size(record) : together),
                   .smem_bytes = (uint32_t)record->smem_bytes,
                   .workspace_bytes = (size_t)(grid * record->workspace_bytes),
                   .pdl = record->pdl,
                   .cooperative = record->cooperative,
                   .reads_ahead = record->reads_ahead,
                   .transposed = {record->transposed[0], record->transposed[1]},
                   .bytes_of_c = record->align[2]};
  return encode_maps(driver, kernel, shape, addresses, result->maps);
}

cu_result plan_run(const cu_driver *driver, const plan *run, void *const addresses[ADDRESSES],
                   int32_t lead, void *parts, cu_stream stream) {
  void *pointers[ADDRESSES] = {addresses[0], addresses[1], addresses[2], addresses[3]};
  cu_tensor_map mapped[MAX_MAPS];
  geometry g = run->shape;
  g.ld[2] = lead;
  void *params[MAX_PARAMS];
  void **next = params;
  const int maps = PARAM_LAYOUT[run->params].maps;
  for (int i = 0; i < maps; i++) {
    mapped[i] = run->maps[i];
    cu_result code = driver->map_address(&mapped[i], addresses[i]);
    if (code != CU_OK) return code;
    *next++ = &mapped[i];
  }
  for (int i = maps; i < 3; i++)
    *next++ = &pointers[i];
  if (PARAM_LAYOUT[run->params].workspace) *next++ = &parts;
  *next++ = &g.m, *next++ = &g.n, *next++ = &g.k;
  for (int i = maps; i < 3; i++)
    *next++ = &g.ld[i];
  if (PARAM_LAYOUT[run->params].addend) *next++ = &pointers[3];
  if (PARAM_LAYOUT[run->params].grouped) *next++ = &pointers[3], *next++ = &g.groups;
  if (PARAM_LAYOUT[run->params].batched) *next++ = &g.batches;

  cu_launch_attribute attributes[3];
  uint32_t count = 0;
  if (run->cluster > 1)
    attributes[count++] =
        (cu_launch_attribute){.id = CU_ATTR_CLUSTER, .value.cluster = {run->cluster, 1, 1}};
  // Together with `cooperative` too: a dependent grid starts once every CTA of the one before has
  // let it, or has ended. So all of that one is on the device and ends without waiting for this
  // one; and cooperative grids of other streams the driver keeps apart.
  if (run->pdl) attributes[count++] = (cu_launch_attribute){.id = CU_ATTR_PDL, .value.flag = 1};
  if (run->cooperative)
    attributes[count++] = (cu_launch_attribute){.id = CU_ATTR_COOPERATIVE, .value.flag = 1};
  cu_launch_config config = {.grid = {run->grid[0], run->grid[1], 1},
                             .block = {run->block, 1, 1},
                             .smem_bytes = run->smem_bytes,
                             .stream = stream,
                             .attributes = attributes,
                             .attribute_count = count};
  return driver->launch(&config, run->function, params, NULL);
}
