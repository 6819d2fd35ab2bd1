#include "kernels/kernels.h"

#include <vector>

#include "kernels/bf16_kernels.h"
#include "kernels/cpu_features.h"
#include "kernels/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/kernels.cpp"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/common/convert-inl.h"
#include "kernels/common/dropout-inl.h"
#include "kernels/common/math-inl.h"
#include "kernels/common/pack-inl.h"
#include "kernels/decode/full_page-inl.h"
#include "kernels/decode/int8_pack-inl.h"
#include "kernels/decode/pages-inl.h"
#include "kernels/decode/rows-inl.h"
#include "kernels/decode/scattered-inl.h"
#include "kernels/decode/short_context-inl.h"
#include "kernels/nn/gemm-inl.h"
#include "kernels/nn/gemm_pack-inl.h"
#include "kernels/nn/gemv-inl.h"
#include "kernels/nn/rope-inl.h"
#include "kernels/peak/peak-inl.h"
#include "kernels/tiles/backward-inl.h"
#include "kernels/tiles/bf16_pack-inl.h"
#include "kernels/tiles/logits-inl.h"
#include "kernels/tiles/matmul-inl.h"
#include "kernels/tiles/softmax-inl.h"
#include "kernels/tiles/sorted_masks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rapt {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3
inline constexpr const char* target_name = "AVX-512";
#elif HWY_TARGET == HWY_AVX2
inline constexpr const char* target_name = "AVX2";
#elif HWY_TARGET == HWY_SSE4
inline constexpr const char* target_name = "SSE4";
#elif HWY_TARGET == HWY_NEON
inline constexpr const char* target_name = "NEON";
#elif HWY_TARGET == HWY_SCALAR
inline constexpr const char* target_name = "scalar";
#else
#error \
    "This version of Highway has a target that rapt does not know: name it here, or disable it above."
#endif

extern const NetworkKernels network_kernels;  // nn_kernels.cpp
#if HWY_TARGET == HWY_AVX3
extern const ByteKernels byte_kernels;  // int8_kernels.cpp
inline constexpr const ByteKernels* bytes = &byte_kernels;
#else
inline constexpr const ByteKernels* bytes = nullptr;
#endif

inline constexpr Kernels kernels = {
    .name = target_name,
    .lanes = lane_count,
    .panel = panel_columns,
    .pack_strips = PackStrips,
    .pack_panels = PackPanels,
    .pack_rows = PackRows,
    .load_numbers = LoadNumbers,
    .store_numbers = StoreNumbers,
    .unpack_key_quads = UnpackKeyQuads,
    .unpack_value_quads = UnpackValueQuads,
    .pack_key_pairs = PackKeyPairs,
    .pack_value_pairs = PackValuePairs,
    .unpack_key_pairs = UnpackKeyPairs,
    .unpack_value_pairs = UnpackValuePairs,
    .scores = Scores,
    .gather = Gather,
    .gather_columns = GatherColumns,
    .thin = {{ThinScores<StoredFloats>, ThinGather<StoredFloats>},
             {ThinScores<StoredPairs>, ThinGather<StoredPairs>},
             {ThinScores<StoredQuads>, ThinGather<StoredQuads>}},
    .open = {{OpenScores<float>, OpenGather<float>},
             {OpenScores<Bf16>, OpenGather<Bf16>},
             {OpenScores<std::int8_t>, OpenGather<std::int8_t>}},
    .row_scores = RowScores,
    .row_gather = RowGather,
    .attend_few = AttendFew,
    .matrix = {.strip = matrix_strip,
               .panel = matrix_panel,
               .unit = lane_count,
               .depth = matrix_depth,
               .depth_unit = 1,
               .pack_strips = PackGroups<matrix_strip, matrix_strip>,
               .pack_panels = PackGroups<matrix_panel, lane_count>,
               .product = MatrixProduct<float>},
    .matrix_rows = MatrixRows,
    .softcap = Softcap,
    .add_diagonal = AddDiagonal,
    .add_tile = AddTile,
    .add_band = AddBand,
    .absorb = Absorb,
    .absorb_stats = AbsorbStats,
    .flush = Flush,
    .finish = Finish,
    .drop = Drop,
    .differentiate = Differentiate,
    .uncap = Uncap,
    .widen = Widen<Store::add>,
    .widen_first = Widen<Store::set>,
    .narrow = Narrow,
    .sum_diagonals = SumDiagonals,
    .rotate_far = Rotate<FarPairs>,
    .rotate_near = Rotate<NearPairs>,
    .signed_argmax = SignedArgmax,
    .slot_words = SlotWords,
    .scattered = {{ScatteredScores<float>, ScatteredSum<float>},
                  {ScatteredScores<Bf16>, ScatteredSum<Bf16>},
                  {ScatteredScores<std::int8_t>, ScatteredSum<std::int8_t>}},
    .fma_loop = FmaLoop,
    .exp2 = Exp2Numbers,
    .tanh = TanhNumbers,
    .read_loop = ReadLoop,
    .network = &network_kernels,
    .thin_pass = {PassTile<StoredFloats>, PassTile<StoredPairs>, PassTile<StoredQuads>},
    .bytes = bytes,
    .matrix_f16 = MatrixProduct<F16>,
    .matrix_bf16 = MatrixProduct<Bf16>,
};

const Kernels* KernelsOfTarget() { return &kernels; }

}  // namespace HWY_NAMESPACE
}  // namespace rapt
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rapt {
namespace {

HWY_EXPORT(KernelsOfTarget);

std::vector<const Kernels*> list_targets() {
  std::vector<const Kernels*> list;
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    list.push_back(HWY_DYNAMIC_DISPATCH(KernelsOfTarget)());
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  return list;
}

/// The best target with an engine for bf16 on top.
Kernels with_pairs(const Kernels& best, const char* name, const PairKernels* pairs) {
  Kernels kernels = best;
  kernels.name = name;
  kernels.pairs = pairs;
  if (pairs->rotate_far != nullptr && has_avx512_bf16()) {
    kernels.rotate_far = pairs->rotate_far;
    kernels.rotate_near = pairs->rotate_near;
  }
  return kernels;
}

std::vector<const Kernels*> list_kernels() {
  std::vector<const Kernels*> list = list_targets();
  const Kernels& best = *list.front();
  if (const PairKernels* vectors = pair_kernels_of(PairEngine::vectors)) {
    static const Kernels kernels = with_pairs(best, "AVX512-BF16", vectors);
    list.insert(list.begin() + (avx512_bf16_pays() ? 0 : 1), &kernels);
  }
  if (const PairKernels* tiles = pair_kernels_of(PairEngine::tiles)) {
    static const Kernels kernels = with_pairs(best, "AMX", tiles);
    list.insert(list.begin(), &kernels);
  }
  static const Kernels portable = with_pairs(best, "pairs", pair_kernels_of(PairEngine::portable));
  list.push_back(&portable);
  return list;
}

}  // namespace

std::span<const Kernels* const> supported_kernels() {
  static const std::vector<const Kernels*> list = list_kernels();
  return list;
}

}  // namespace rapt
#endif
