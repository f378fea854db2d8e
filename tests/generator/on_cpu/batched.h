// Which tiles the CTAs of a batched kernel find, and what they store of them: every row of every
// product, in every column, once; nothing else. Values say where they belong.
constexpr u16 kUntouched = 0x7fda;

static int wrong;

static float value(int row, int column, int of) {
  return (float)((row * 31 + column * 7 + of * 53) % 251 - 100);
}

// What a residual adds: small, so that sums are exact.
static float more(int row, int column, int of) {
  return HGP_RESIDUAL ? (float)((row + column * 3 + of) % 5) : 0;
}

static void check(int batches, int m, int n, int clusters) {
  const int ldc = n, behind = batches + kTokens + 4;  // rows that are no product's
  std::vector<u16> outputs((size_t)(batches * m + behind) * n, kUntouched),
      residual((size_t)batches * m * n);
  std::vector<int> times((size_t)batches * m * n);
  for (int of = 0; of < batches; ++of)
    for (int row = 0; row < m; ++row)
      for (int column = 0; column < n; ++column)
        residual[((size_t)of * m + row) * n + column] = rounded(more(row, column, of));
  u16 *const c = outputs.data();
  const u16 *const addend = residual.data();
  static const TensorMap map_c = {};
  rows_of_each = m;
  take_box = [&](const uint8_t *box, int column, int row) {
    for (int i = 0; i < kTokens && row % m + i < m; ++i)
      for (int j = 0; j < 64 && column + j < n; ++j)
        memcpy(&outputs[(size_t)(row + i) * n + column + j],
               box + i * 128 + (j / 8 ^ i % 8) * 16 + j % 8 * 2, 2);
  };
  gridDim = {(unsigned)(clusters * kClusterSize), 1, 1};
  for (int cta = 0; cta < clusters * kClusterSize; ++cta)
    run_block(kWarps * 32, [&] {
      blockIdx = {(unsigned)cta, 0, 0};
      own_rank = cta % kClusterSize;
      const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, consumer = warp / 4;
      u8 *const staging = shared + (kWhole ? consumer : warp) * kBuffers * kBufferBytes;
      const Tiles tiles(m, n, batches);
      u32 turn = 0;
      int t = tiles.first;
      if (kPingpong && consumer == 1) t += tiles.step;
      for (; t < tiles.total; t += kPingpong ? 2 * tiles.step : tiles.step) {
        const Place at = tiles.origin(t);
        for (int block = 0; block < kBlocks; ++block) {
          const int column = at.n + ((kPingpong ? 0 : consumer * kBlocks) + block) * 64;
          const int own = column + warp % 4 * 16;
          float acc[kTokens / 2];
          for (int i = 0; i < kTokens / 2; ++i)
            acc[i] = value(at.m + i / 4 * 8 + lane % 4 * 2 + i % 2,
                           own + lane / 4 + i % 4 / 2 * 8, at.of);
          for (int row = at.m; row < min(at.m + kTokens, m); ++row)
            if (lane < 16 && own + lane < n)
              ++times[((size_t)at.of * m + row) * n + own + lane];
          if (HGP_EPILOGUE_BULK && at.m >= m) continue;  // the map takes nothing of it
          store_block(acc, staging, turn, kEpilogueBarrier + consumer, at.m,
                      column + (kWhole ? 0 : warp % 4 * 16), m, n HGP_TO_C_OF_TILE HGP_ADDEND_OF_TILE);
        }
      }
    });
  for (int at = 0; at < batches * m + behind; ++at)
    for (int column = 0; column < n; ++column) {
      const int of = at / m, row = at % m;
      const bool is_in = of < batches;
      const float exact = value(row, column, of) + more(row, column, of);
      wrong += outputs[(size_t)at * n + column] != (is_in ? rounded(exact) : kUntouched);
      if (is_in) wrong += times[(size_t)at * n + column] != 1;
    }
}

int main() {
  const int t = kTokens;
  check(3, 1, 8, 2);
  check(2, t, kRows, 1);
  check(5, t + 1, kRows + 8, 3);
  check(4, 2 * t + 3, 2 * kRows - 8, 5);
  check(40, 2, 16, 7);
  printf("%d\n", wrong);
}
