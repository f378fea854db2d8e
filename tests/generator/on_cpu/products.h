// Whole products by a kernel as it is launched, one cluster after the other, held against double. All
// values are multiples of 1/4 and small: sums in fp32 are exact, and so is what is stored.
constexpr u16 kUntouched = 0x7fda;
static int wrong;

static std::vector<u16> drawn(size_t count) {
  std::vector<u16> values(count);
  for (auto &v : values)
    v = rounded((rand() % 17 - 8) / 4.0f);
  return values;
}
static double value(u16 v) {
  return __uint_as_float((u32)v << 16);
}

// Rows of A, B and C are `gap` elements longer than they must be, and each matrix begins `before`
// elements behind an aligned address. Memory of A and B ends where they do.
static void check(int m, int n, int k, int gap, int before) {
  const int lda = (HGP_A_MN_MAJOR ? m : k) + gap, ldb = (HGP_B_MN_MAJOR ? n : k) + gap;
  const int ldc = n + gap;
  const auto of_a = drawn(before + (size_t)(HGP_A_MN_MAJOR ? k : m) * lda - gap);
  const auto of_b = drawn(before + (size_t)(HGP_B_MN_MAJOR ? k : n) * ldb - gap);
  const auto more = drawn((size_t)m * n);
  const u16 *const a = of_a.data() + before, *const b = of_b.data() + before;
  const u16 *const addend = more.data();
  std::vector<u16> of_c(before + (size_t)(m + 2) * ldc, kUntouched);
  for (int x = 0; x < ceil_div(m, kTileM); ++x)
    for (int y = 0; y < ceil_div(n, kTileN); ++y)
      run_cluster(kRanks, kThreads, [&] {
        blockIdx = {(unsigned)(x * kRanks + own_cta), (unsigned)y, 0};
        HGP_SYMBOL(a, b, of_c.data() + before, m, n, k, lda, ldb, ldc HGP_GIVE_ADDEND);
      });
  std::vector<u16> right(of_c.size(), kUntouched);
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j) {
      double sum = 0;
      for (int l = 0; l < k; ++l)
        sum += value(a[HGP_A_MN_MAJOR ? l * lda + i : i * lda + l]) *
               value(b[HGP_B_MN_MAJOR ? l * ldb + j : j * ldb + l]);
#ifdef HGP_ACTIVATION
      sum += value(addend[HGP_RESIDUAL * i * n + j]);
#endif
      right[before + i * ldc + j] = rounded((float)sum);
    }
  for (size_t i = 0; i < right.size(); ++i)
    wrong += of_c[i] != right[i];
}

int main() {
  check(1, 1, 1, 0, 0);
  check(kTileM + 1, kTileN + 1, kRanks * kWindow * 5 / 2 + 21, 3, 1);
  check(2 * kTileM - 1, kTileN - 1, kWindow / 2 + 3, 0, 1);
  printf("%d\n", wrong);
}
