// The same for what takes Vec4, which the kernels declare.
inline Vec4 load_shared16(u32 at) {
  Vec4 v;
  memcpy(&v, shared + at, 16);
  return v;
}
inline void store_shared16(u32 at, Vec4 v) {
  memcpy(shared + at, &v, 16);
}
inline Vec4 load_global16(const void *p) {
  Vec4 v;
  memcpy(&v, p, 16);
  return v;
}
template <bool streaming>
inline void store_global16(void *p, Vec4 v) {
  memcpy(p, &v, 16);
}
template <class T>
inline void store_if(bool inside, u16 *p, T v) {
  if (!inside) return;
  if ((uintptr_t)p % sizeof v) abort();  // as a GPU does
  memcpy(p, &v, sizeof v);
}
template <bool streaming>
inline void store_box(const TensorMap *, const void *box, int column, int row) {
  take_box((const uint8_t *)box, column, row);
}
// The same of a batch: to the rows of all its products, one behind the other.
static int rows_of_each;
template <bool streaming>
inline void store_box_of(const TensorMap *, const void *box, int column, int row, int of) {
  if (row >= rows_of_each) abort();
  take_box((const uint8_t *)box, column, of * rows_of_each + row);
}
