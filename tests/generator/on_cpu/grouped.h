// Which tiles the CTAs of a grouped kernel find, and what they store of them: every row of a group
// by its own expert, in every column, once; nothing else. Values say where they belong.
constexpr u16 kUntouched = 0x7fda;

static int wrong;

static float value(int row, int column, int expert) {
  return (float)((row * 31 + column * 7 + expert * 53) % 251);
}

static void check(const std::vector<int> &ends, int m, int n, int ctas) {
  const int experts = (int)ends.size();
  std::vector<u16> c((size_t)(m + 4) * n, kUntouched);
  std::vector<int> times((size_t)m * n);
  gridDim = {(unsigned)ctas, 1, 1};
  for (int cta = 0; cta < ctas; ++cta) {
    static Shared own;
    static Group list[HGP_MAX_GROUPS + 1];
    run_block(kThreads, [&] {
      blockIdx = {(unsigned)cta, 0, 0};
      const int tiles = list_groups(list, own, ends.data(), experts, m);
      __syncthreads();
      const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, consumer = warp / 4;
      if (warp >= kProducer) return;
      Walk walk(list, tiles, n);
      if (kPingpong && consumer == 1) walk.t += gridDim.x;
      for (; walk.find(); walk.t += (kPingpong ? 2 : 1) * gridDim.x) {
        // A mistake may leave a group of another check in the list: its rows are not in this C.
        if (walk.token < 0 || walk.group->end > m) {
          ++wrong;
          return;
        }
        for (int block = 0; block < kBlocks; ++block) {
          const int first = (kPingpong ? 0 : consumer * kBlocks) + block;
          const int column = walk.column + first * 64 + warp % 4 * 16;
          float acc[kTokens / 2];
          for (int i = 0; i < kTokens / 2; ++i)
            acc[i] = value(walk.token + i / 4 * 8 + lane % 4 * 2 + i % 2,
                           column + lane / 4 + i % 4 / 2 * 8, walk.group->expert);
          for (int row = walk.token; row < min(walk.token + kTokens, walk.group->end); ++row)
            if (lane < 16 && column + lane < n) ++times[(size_t)row * n + column + lane];
          store_turned(acc, warp * kStagingBytes, c.data(), n, n, walk.token, walk.group->end,
                       column);
        }
      }
    });
  }
  std::vector<int> expert_of(m, -1);
  for (int e = 0, start = 0; e < experts; ++e) {
    const int end = max(0, min(ends[e], m));
    for (int row = start; row < end; ++row)
      expert_of[row] = e;
    start = end;
  }
  for (int row = 0; row < m + 4; ++row)
    for (int column = 0; column < n; ++column) {
      const u16 got = c[(size_t)row * n + column];
      const bool is_in = row < m && expert_of[row] >= 0;
      wrong += got != (is_in ? rounded(value(row, column, expert_of[row])) : kUntouched);
      if (row < m) wrong += times[(size_t)row * n + column] != is_in;
    }
}

int main() {
  const int t = kTokens;
  check({3, t, t, 2 * t + 1, 2 * t + 1, 2 * t + 2}, 2 * t + 5, kRows + 8, 3);
  check({0, 0, 5 * t + 1, 5 * t + 1}, 5 * t + 1, 8, 2);
  check({0, 0, 0}, t, kRows, 2);
  check({-5, 4, 4, 1 << 30, 1 << 30}, t + 9, 2 * kRows - 8, 5);
  check({7}, 7, kRows, 1);
  std::vector<int> many;
  for (int e = 0, end = 0; e < HGP_MAX_GROUPS; ++e)
    many.push_back(end += e % 7 == 3 ? 2 : 0);
  check(many, many.back(), 16, 4);
  for (int e = 0, end = 0; e < 70; ++e)
    many[e] = end += e == 5 ? 3 * t + 1 : e * 29 % 11 / 4;
  many.resize(70);
  check(many, many.back() + 3, kRows + 16, 3);
  printf("%d\n", wrong);
}
