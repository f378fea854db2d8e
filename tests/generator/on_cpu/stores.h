// What a kernel makes of given sums, from the accumulators to C, held against double. FAMILY names
// the family's part below; HGP_GATE and HGP_RESIDUAL say what is right.
#ifdef HGP_GATE
constexpr bool kGated = true;
#else
constexpr bool kGated = false;
#endif
#ifndef HGP_EPILOGUE_GROUPED
#define HGP_EPILOGUE_GROUPED 0
#endif
#ifndef EXPECT_BIAS  // the first row of what is laid out as a residual
#define EXPECT_BIAS 0
#endif
constexpr u16 kUntouched = 0x7fda;

static std::vector<u16> outputs, residual;
static int m, n, ldc;
static u16 *c;
static const u16 *addend;
static double sums[512][1024];  // of the product, by its columns as the tiles have them
static int wrong;

static void lay_out(int rows, int columns) {
  m = rows, n = columns, ldc = HGP_OF_C(n) + 24;
  outputs.assign((size_t)(m + 3) * ldc, kUntouched);
  residual.resize((size_t)m * n);
  for (auto &v : residual)
    v = rounded((rand() % 2001 - 1000) / 300.0f);
  for (auto &row : sums)
    for (auto &v : row)
      v = (float)((rand() % 2001 - 1000) / 250.0);
  c = outputs.data(), addend = residual.data();
}

static double right(int row, int column) {
  if (!kGated)
    return sums[row][column] +
           (HGP_RESIDUAL || EXPECT_BIAS
                ? __uint_as_float((u32)residual[HGP_RESIDUAL * row * n + column] << 16)
                : 0);
  const double gate = sums[row][column / 8 * 16 + column % 8];
  return gate / (1 + exp(-gate)) * sums[row][column / 8 * 16 + 8 + column % 8];
}

static void compare() {
  for (int i = 0; i < m + 3; ++i)
    for (int j = 0; j < ldc; ++j) {
      const u16 got = outputs[i * ldc + j];
      if (i >= m || j >= HGP_OF_C(n)) {
        wrong += got != kUntouched;
        continue;
      }
      const double exact = right(i, j);
      wrong += !(fabs(__uint_as_float((u32)got << 16) - exact) <= fabs(exact) / 255 + 1e-6);
    }
}

// Where position `p` of a tile is in the product, as a map with row_group 32 brings it.
static int column_at(int p) {
  return HGP_EPILOGUE_GROUPED ? p / 32 * 32 + p % 8 * 4 + p % 32 / 8 : p;
}

// A thread's accumulators of an m64 block.
template <int kCount>
static void hold(float (&acc)[kCount], int row, int column) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int i = 0; i < kCount; ++i)
    acc[i] = (float)sums[row + warp % 4 * 16 + lane / 4 + i % 4 / 2 * 8]
                        [column + column_at(i / 4 * 8 + lane % 4 * 2 + i % 2)];
}

static void each_tile(int tile_m, int tile_n, int threads,
                      const std::function<void(int, int)> &work) {
  for (int row = 0; row < m; row += tile_m)
    for (int column = 0; column < n; column += tile_n)
      run_block(threads, [&] { work(row, column); });
}

#if FAMILY_swapab
static int rows() {
  return kTokens;
}
static int columns() {
  return kRows;
}
static void store_all() {
  each_tile(kTokens, kRows, kWarps * 32, [](int token, int first) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const u32 own = warp * kStagingBytes;
    for (int block = 0; block < kBlocks; ++block) {
      const int column = first + (warp / 4 * kBlocks + block) * 64 + warp % 4 * 16;
      float acc[kTokens / 2];
      for (int i = 0; i < kTokens / 2; ++i)
        acc[i] = (float)
            sums[token + i / 4 * 8 + lane % 4 * 2 + i % 2][column + lane / 4 + i % 4 / 2 * 8];
      HGP_FINISH_TRANSPOSED(acc, own, token, column);
      store_transposed(acc, own, c, ldc, m, HGP_OF_C(n), token, HGP_OF_C(column));
    }
  });
}
#elif FAMILY_oneshot
static int rows() {
  return 64;
}
static int columns() {
  return kTileN;
}
static void store_all() {
  for (int rank = 0; rank < kSplit; ++rank)
    each_tile(64, kTileN, 128, [=](int row, int column) {
      const u32 staging = threadIdx.x / 32 * Epilogue::kWarpBytes;
      float acc[kTileN / 2], share[kShare];
      hold(acc, row, column);
      for (int i = 0; i < kShare; ++i)
        share[i] = acc[rank * kShare + i];
      const int first = rank * kShare, below = kShare < 4 ? first / 2 % 2 * 8 : 0;
      const int own = column + first / 4 * 8 + (kShare == 1 ? first % 2 : 0);
      HGP_FINISH(share, row + below, own);
      Epilogue::store(HGP_FINISHED(share),
                      OutputBlock{c, ldc, m, HGP_OF_C(n), row + below, HGP_OF_C(own)}, staging);
    });
}
#if HGP_CP_ASYNC && defined(HGP_GATE)
// Copies of B by all threads: as the map brings it, 8 rows of one half and 8 of the other.
static void check_copies() {
  const int k = 72, ld = 80;
  std::vector<u16> b((size_t)n * ld);
  for (auto &v : b)
    v = (u16)rand();
  for (int first = 0; first < n; first += kTileN)
    for (int from : {0, 64}) {
      run_block(kThreads, [&] { CopyB(shared, b.data(), ld, n, k, first).slab(0, from); });
      for (int line = 0; line < kTileN && first + line < n; ++line)
        for (int i = 0; i < 64; ++i) {
          const int x = first + line, row = x / 16 * 8 + x % 8 + (x % 16 < 8 ? 0 : n / 2);
          u16 got;
          memcpy(&got, shared + line * 128 + (i / 8 ^ line % 8) * 16 + i % 8 * 2, 2);
          wrong += got != (from + i < k ? b[(size_t)row * ld + from + i] : 0);
        }
    }
}
#define CHECK_COPIES check_copies()
#endif
#elif FAMILY_gemv
static int rows() {
  return kTokens;
}
static int columns() {
  return kTileN;
}
static void store_all() {
  static float parts[1 << 16];
  for (int first = 0; first < n; first += kTileN) {
    for (int i = 0; i < kWarpsK * Reduce::kPart; ++i)
      parts[i] = 1;
    for (int t = 0; t < m; ++t)
      for (int x = 0; x < kTileN; ++x)
        parts[t * Reduce::kStride + x] = (float)(sums[t][first + x] - (kWarpsK - 1));
    run_block(kThreads, [=] {
      Reduce::store(parts, nullptr, nullptr, 0, m, TokenRows{c, ldc, n, first HGP_GIVE_ADDEND});
    });
  }
  for (int x = 0; kGated && x < n; ++x)
    wrong += column_of_b(x, n) != x / 16 * 8 + x % 8 + (x % 16 < 8 ? 0 : n / 2);
}
#elif FAMILY_direct
static int rows() {
  return kTileM;
}
static int columns() {
  return kTileN;
}
static void store_all() {
  const Output out{c, 2u * ldc, m, n HGP_GIVE_ADDEND};
  for (int i = 0; i < m + 2; ++i)
    for (int j = 0; j < n + 8; j += 4) {
      Floats<4> x;
      for (int w = 0; w < 4; ++w)
        x.v[w] = (float)sums[i][j + w];
      out.store(x, i, j);
    }
}
#elif FAMILY_tokens
static int rows() {
  return kTokens;
}
static int columns() {
  return kRows;
}
static void store_all() {
  static const TensorMap map_c = {};
  take_box = [](const uint8_t *box, int column, int row) {
    if ((box - shared) % 1024 != 0) abort();  // the swizzle is of addresses
    for (int i = 0; i < kTokens && row + i < m; ++i)
      for (int j = 0; j < 64 && column + j < n; ++j)
        memcpy(&outputs[(row + i) * ldc + column + j],
               box + i * 128 + (j / 8 ^ i % 8) * 16 + j % 8 * 2, 2);
  };
  each_tile(kTokens, kRows, kWarps * 32, [](int token, int first) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, consumer = warp / 4;
    u8 *const staging = shared + (kWhole ? consumer : warp) * kBuffers * kBufferBytes;
    u32 turn = 0;
    for (int block = 0; block < kRows / kConsumers / 64; ++block) {
      const int column = first + (consumer * (kRows / kConsumers / 64) + block) * 64;
      float acc[kTokens / 2];
      for (int i = 0; i < kTokens / 2; ++i)
        acc[i] = (float)sums[token + i / 4 * 8 + lane % 4 * 2 + i % 2]
                            [column + warp % 4 * 16 + lane / 4 + i % 4 / 2 * 8];
      store_block(acc, staging, turn, kEpilogueBarrier + consumer, token,
                  column + (kWhole ? 0 : warp % 4 * 16), m, n HGP_TO_C HGP_GIVE_ADDEND);
    }
  });
}
#elif FAMILY_unaligned
static int rows() {
  return 64;
}
static int columns() {
  return kTileN;
}
static void store_all() {
  const Output out{c, ldc, m, n HGP_GIVE_ADDEND};
  each_tile(64, kTileN, 128, [=](int row, int column) {
    float acc[kTileN / 2];
    hold(acc, row, column);
    out.finish(acc, row, column);
    out.store(acc, row, column, threadIdx.x / 32 * StagedEpilogue<kTileN, false>::kWarpBytes);
  });
}
// Copies of an operand by all producers: where a tensor map would put it, and zeros outside; wide ones
// bring zeros behind the last k alone.
template <class Copy, int kRows, bool kMnMajor>
static void check_operand(int rows, int k, int bytes) {
  const int inner = kMnMajor ? rows : k, outer = kMnMajor ? k : rows;
  const int atom = kMnMajor && kRows % 64 ? 32 : 64;
  const int lead =
      (inner + bytes / 2 - 1) / (bytes / 2) * (bytes / 2) + (bytes == 16 ? 8 : bytes / 2);
  const int before = HGP_WIDE && bytes == 2 ? rand() % 8 : 0;  // elements: where the matrix begins
  std::vector<u16> memory(before + (size_t)(outer - 1) * lead + inner);
  for (auto &v : memory)
    v = (u16)rand();
  const u16 *const matrix = memory.data() + before;
  for (int first = 0; first < rows; first += kRows)
    for (int from = 0; from < k; from += 64) {
      run_block(kProducerThreads, [&] {
#if HGP_WIDE
        const Copy copy(matrix, lead, rows, k, first, threadIdx.x, kRows * 128);
        copy.copy(shared, from);
        __syncwarp();
        copy.shift(shared, from);
#else
        Copy(matrix, lead, rows, k, first, threadIdx.x).slab(shared, from);
#endif
      });
      for (int r = 0; r < kRows; ++r)
        for (int i = 0; i < 64; ++i) {
          const int line = kMnMajor ? i : r, x = kMnMajor ? r % atom : i;
          const int unit = x / 8 ^ (atom == 64 ? line % 8 : line / 2 % 4);
          const int place =
              (kMnMajor ? r / atom * 64 + line : line) * atom * 2 + unit * 16 + x % 8 * 2;
          const bool inside = first + r < rows && from + i < k;
          if (HGP_WIDE && first + r >= rows && from + i < k)
            continue;
          const size_t at = kMnMajor ? (size_t)(from + i) * lead + first + r
                                     : (size_t)(first + r) * lead + from + i;
          u16 got;
          memcpy(&got, shared + place, 2);
          wrong += got != (inside ? matrix[at] : 0);
        }
    }
}
static void check_copies() {
  for (int k : {1, 71, 200}) {
    check_operand<CopyA, kTileM, HGP_A_MN_MAJOR>(m, k, HGP_A_BYTES);
    check_operand<CopyB, kTileN, HGP_B_MN_MAJOR>(n, k, HGP_B_BYTES);
  }
}
#define CHECK_COPIES check_copies()
#else  // wgmma, writebound
static int rows() {
  return 64;
}
static int columns() {
  return kTileN;
}
static void store_all() {
  each_tile(64, kTileN, 128, [](int row, int column) {
    u8 *staging = shared;
    u32 turn = 0;
    const int warp = threadIdx.x / 32;
    float acc[kTileN / 2];
    hold(acc, row, column);
    HGP_FINISH(acc, row, column);
    HGP_STORE_BLOCK(HGP_FINISHED(acc), row, HGP_OF_C(column), staging, warp, 0, turn);
  });
}
#endif

int main(int, char **arguments) {
  const int step = atoi(arguments[1]);
  const int most = FAMILY_gemv ? rows() : 2 * rows() - 1;
  for (int tall : {1, rows(), most})
    for (int wide : {columns(), columns() + step, 2 * columns() - step}) {
      lay_out(tall, wide < step ? step : wide);
      store_all();
      compare();
#ifdef CHECK_COPIES
      CHECK_COPIES;
#endif
    }
  printf("%d\n", wrong);
}
