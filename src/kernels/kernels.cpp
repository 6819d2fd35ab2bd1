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
namespace rapt::detail {
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

extern const NetworkKernels network_kernels;  // network_kernels.cpp
#if HWY_TARGET == HWY_AVX3
extern const DecodeKernels::Int8Products int8_products;  // int8_kernels.cpp
#endif

inline constexpr VectorKernels vector_kernels = {
    .load = LoadNumbers,
    .store = StoreNumbers,
    .widen = Widen<Store::add>,
    .widen_first = Widen<Store::set>,
    .narrow = Narrow,
    .exp2 = Exp2Numbers,
    .tanh = TanhNumbers,
};

inline constexpr TileKernels<float> f32_tile_kernels = {
    .panel = panel_columns,
    .depth_unit = 1,
    .width_unit = lane_count,
    .pack_strips = PackStrips,
    .pack_panels = PackPanels,
    .pack_rows = PackRows,
    .scores = Scores,
    .accumulate_values = AccumulateValues,
    .accumulate_transposed = AccumulateTransposed,
    .online_softmax = OnlineSoftmax,
    .online_softmax_stats = OnlineSoftmaxStats,
    .softmax_backward = SoftmaxBackward,
};

inline constexpr ScoreKernels score_kernels = {
    .softcap = Softcap,
    .add_diagonal = AddDiagonal,
    .add_tile = AddTile,
    .add_band = AddBand,
    .softcap_backward = SoftcapBackward,
    .sum_diagonals = SumDiagonals,
    .dropout = Drop,
    .flush = Flush,
    .finish = Finish,
};

inline constexpr PageKernels page_kernels = {
    .pack_bf16_keys = PackBf16Panels,
    .pack_bf16_values = PackBf16Rows,
    .unpack_bf16_keys = UnpackBf16Panels,
    .unpack_bf16_values = UnpackBf16Rows,
    .unpack_int8_keys = UnpackInt8Panels,
    .unpack_int8_values = UnpackInt8Rows,
};

template <class Stored>
inline constexpr DecodeKernels::Page decode_page = {
    PageScores<Stored>, PageAccumulateValues<Stored>, AttendPage<Stored>};
template <class Number>
inline constexpr DecodeKernels::Scattered decode_scattered = {ScatteredScores<Number>,
                                                              ScatteredAccumulateValues<Number>};

inline constexpr DecodeKernels decode_kernels = {
    .rows = {RowScores, RowAccumulateValues},
    .page = {decode_page<StoredF32>, decode_page<StoredBf16>, decode_page<StoredInt8>},
    .scattered = {decode_scattered<float>, decode_scattered<Bf16>, decode_scattered<std::int8_t>},
    .attend_short_context = AttendShortContext,
};

inline constexpr MatrixKernels<float> f32_matrix_kernels = {
    .strip = matrix_strip,
    .panel = matrix_panel,
    .unit = lane_count,
    .depth = matrix_depth,
    .depth_unit = 1,
    .pack_strips = PackGroups<matrix_strip, matrix_strip>,
    .pack_panels = PackGroups<matrix_panel, lane_count>,
    .product = MatrixProduct<float>,
};

inline constexpr Kernels target_kernels = {
    .name = target_name,
    .lanes = lane_count,
    .vectors = vector_kernels,
    .tiles = f32_tile_kernels,
    .score = score_kernels,
    .pages = page_kernels,
    .decode = decode_kernels,
    .matrix = f32_matrix_kernels,
    .weights = {.gemv = MatrixRows,
                .product_f16 = MatrixProduct<F16>,
                .product_bf16 = MatrixProduct<Bf16>},
    .rope = {Rotate<HalfSplitPairs>, Rotate<InterleavedPairs>},
    .lsh = {SignedArgmax, SortedMasks},
    .peak = {FmaLoop, ReadLoop},
    .network = &network_kernels,
};

/// With the int8 products of AVX512-VNNI where the CPU has them.
Kernels KernelsOfTarget() {
  Kernels kernels = target_kernels;
#if HWY_TARGET == HWY_AVX3
  if (has_avx512_vnni()) kernels.decode.use(int8_products);
#endif
  return kernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace rapt::detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rapt::detail {
namespace {

HWY_EXPORT(KernelsOfTarget);

std::vector<Kernels> list_targets() {
  std::vector<Kernels> list;
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    list.push_back(HWY_DYNAMIC_DISPATCH(KernelsOfTarget)());
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  return list;
}

/// The best target with an engine for bf16.
Kernels with_bf16(const Kernels& best, const char* name, const Bf16Kernels* bf16) {
  Kernels kernels = best;
  kernels.name = name;
  kernels.bf16 = bf16;
  return kernels;
}

/// The same, for an engine of the CPU: such a CPU may also have an instruction that rounds to bf16.
Kernels with_native_bf16(const Kernels& best, const char* name, const Bf16Kernels* bf16) {
  Kernels kernels = with_bf16(best, name, bf16);
  if (const RopeKernels* rope = bf16_rope_kernels()) kernels.rope = *rope;
  return kernels;
}

std::vector<const Kernels*> list_kernels() {
  static const std::vector<Kernels> targets = list_targets();
  std::vector<const Kernels*> list;
  for (const Kernels& target : targets) list.push_back(&target);
  const Kernels& best = targets.front();
  if (const Bf16Kernels* avx512 = bf16_kernels_of(Bf16Engine::avx512)) {
    static const Kernels kernels = with_native_bf16(best, "AVX512-BF16", avx512);
    list.insert(list.begin() + (avx512_bf16_pays() ? 0 : 1), &kernels);
  }
  if (const Bf16Kernels* amx = bf16_kernels_of(Bf16Engine::amx)) {
    static const Kernels kernels = with_native_bf16(best, "AMX", amx);
    list.insert(list.begin(), &kernels);
  }
  static const Kernels portable =
      with_bf16(best, "portable-bf16", bf16_kernels_of(Bf16Engine::portable));
  list.push_back(&portable);
  return list;
}

}  // namespace

std::span<const Kernels* const> supported_kernels() {
  static const std::vector<const Kernels*> list = list_kernels();
  return list;
}

}  // namespace rapt::detail
#endif
