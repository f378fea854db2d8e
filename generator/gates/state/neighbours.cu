// What runs beside and between launches of a kernel under test: fillers of shared memory and registers, and work that
// never rests. No product of anybody is computed here.
typedef unsigned int u32;
typedef unsigned long long u64;

__device__ __forceinline__ u32 mixed(u32 x) {
  x = (x ^ x >> 16) * 0x7feb352dU;
  x = (x ^ x >> 15) * 0x846ca68bU;
  return x ^ x >> 16;
}

// One CTA an SM, for each takes all of its shared memory and, 1024 threads of 64, all of its registers.
// Fills both with `pattern`, or with bits that `seed` and the place decide where `random` is not 0.
extern "C" __global__ void __launch_bounds__(1024, 1) fill(u32 pattern, u32 random, u32 seed, u32 words, u32* sink) {
  extern __shared__ u32 memory[];
  const u32 place = mixed(seed ^ mixed(blockIdx.x * 1024 + threadIdx.x));
  for (u32 i = threadIdx.x; i < words; i += 1024) {
    reinterpret_cast<volatile u32*>(memory)[i] = random ? mixed(place + i) : pattern;
  }
  u32 held[48];
#pragma unroll
  for (int i = 0; i < 48; ++i) held[i] = random ? mixed(place ^ (0x9e3779b9U * i)) : pattern;
  // Twice over all of them, so that all are held at once.
#pragma unroll
  for (int turn = 0; turn < 2; ++turn) {
#pragma unroll
    for (int i = 0; i < 48; ++i) asm volatile("" : "+r"(held[i]));
  }
  u32 sum = 0;
#pragma unroll
  for (int i = 0; i < 48; ++i) sum ^= held[i] + i;
  if (sum == seed && words == 0) *sink = sum;  // never: the host gives no 0
}

// Reads and writes `count` words over and over, from as many CTAs as there are, until `stop` is not 0 or `most`
// nanoseconds have gone.
extern "C" __global__ void __launch_bounds__(512) hammer(u32* memory, u64 count, const volatile u32* stop, u64 most) {
  u64 now, began;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(began));
  u32 sum = blockIdx.x;
  const u64 step = (u64)gridDim.x * blockDim.x;
  do {
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x, turn = 0; i < count && turn < 64; i += step, ++turn) {
      sum = mixed(sum + memory[i]);
      memory[i] = sum;
    }
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (!*stop && now - began < most);
}
