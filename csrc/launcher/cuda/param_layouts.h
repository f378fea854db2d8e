// The parameter layouts that a manifest may name: a closed set, known to the kernels
// (csrc/kernels), the generator and the launcher. Any change to a layout is a new name; any change
// to the set, or to what a launch record means, raises LAUNCHER_ABI. Where it is no map, C is the
// third parameter and ldc the last but for an addend, but for ends and number of the groups, or but
// for the number of products: predecessor.c reads them off a node of a graph.
#ifndef HGP_PARAM_LAYOUTS_H
#define HGP_PARAM_LAYOUTS_H

enum { LAUNCHER_ABI = 7 };

enum { MAX_MAPS = 3, MAX_PARAMS = 10 };

// Groups of a grouped product; its kernels have room for the list of so many.
enum { MAX_GROUPS = 512 };

typedef enum {
  PTR_V1,         // const a*, const b*, c*, int32 m, n, k, lda, ldb, ldc
  TMA2_V1,        // tensor maps a, b, then c*, int32 m, n, k, ldc
  TMA3_V1,        // tensor maps a, b, c, then int32 m, n, k
  TMA2_WS_V2,     // tensor maps a, b, then c*, uint32 parts*, int32 m, n, k, ldc
  PTR_V1_ADDEND,  // these four, then const addend*: a bias [N], or a residual [M,N], packed
  TMA2_V1_ADDEND,
  TMA3_V1_ADDEND,
  TMA2_WS_V2_ADDEND,
  TMA2_GROUPED_V1,  // as tma2_v1, then const int32 ends*, int32 groups; b has a map of three dims
  TMA2_BATCHED_V1,  // as tma2_v1, then int32 batches; all maps have three dims
  TMA3_BATCHED_V1,
  TMA2_BATCHED_V1_ADDEND,  // as these, the addend before the number of batches
  TMA3_BATCHED_V1_ADDEND,
  PARAM_LAYOUTS,
} param_layout;

typedef struct {
  const char *name;
  int maps;       // tensor maps, in the order a, b, c
  int workspace;  // its address follows c
  int addend;     // its address is the last parameter
  int grouped;    // where the groups end, and how many they are, are the last two
  int batched;    // how many products there are is the last
  int count;      // kernel parameters
  int sizes[MAX_PARAMS];
} param_layout_info;

static const param_layout_info PARAM_LAYOUT[PARAM_LAYOUTS] = {
    [PTR_V1] = {"ptr_v1", 0, 0, 0, 0, 0, 9, {8, 8, 8, 4, 4, 4, 4, 4, 4}},
    [TMA2_V1] = {"tma2_v1", 2, 0, 0, 0, 0, 7, {128, 128, 8, 4, 4, 4, 4}},
    [TMA3_V1] = {"tma3_v1", 3, 0, 0, 0, 0, 6, {128, 128, 128, 4, 4, 4}},
    [TMA2_WS_V2] = {"tma2_ws_v2", 2, 1, 0, 0, 0, 8, {128, 128, 8, 8, 4, 4, 4, 4}},
    [PTR_V1_ADDEND] = {"ptr_v1_addend", 0, 0, 1, 0, 0, 10, {8, 8, 8, 4, 4, 4, 4, 4, 4, 8}},
    [TMA2_V1_ADDEND] = {"tma2_v1_addend", 2, 0, 1, 0, 0, 8, {128, 128, 8, 4, 4, 4, 4, 8}},
    [TMA3_V1_ADDEND] = {"tma3_v1_addend", 3, 0, 1, 0, 0, 7, {128, 128, 128, 4, 4, 4, 8}},
    [TMA2_WS_V2_ADDEND] = {"tma2_ws_v2_addend", 2, 1, 1, 0, 0, 9, {128, 128, 8, 8, 4, 4, 4, 4, 8}},
    [TMA2_GROUPED_V1] = {"tma2_grouped_v1", 2, 0, 0, 1, 0, 9, {128, 128, 8, 4, 4, 4, 4, 8, 4}},
    [TMA2_BATCHED_V1] = {"tma2_batched_v1", 2, 0, 0, 0, 1, 8, {128, 128, 8, 4, 4, 4, 4, 4}},
    [TMA3_BATCHED_V1] = {"tma3_batched_v1", 3, 0, 0, 0, 1, 7, {128, 128, 128, 4, 4, 4, 4}},
    [TMA2_BATCHED_V1_ADDEND] =
        {"tma2_batched_v1_addend", 2, 0, 1, 0, 1, 9, {128, 128, 8, 4, 4, 4, 4, 8, 4}},
    [TMA3_BATCHED_V1_ADDEND] =
        {"tma3_batched_v1_addend", 3, 0, 1, 0, 1, 8, {128, 128, 128, 4, 4, 4, 8, 4}},
};

#endif
