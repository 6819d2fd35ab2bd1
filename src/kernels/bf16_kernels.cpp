#include "kernels/bf16_kernels.h"

#include <vector>

#include "kernels/cpu_features.h"
#include "kernels/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/bf16_kernels.cpp"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/nn/bf16_gemm-inl.h"
#include "kernels/nn/rope_words-inl.h"
#include "kernels/peak/bf16_peak-inl.h"
#include "kernels/tiles/bf16_backward-inl.h"
#include "kernels/tiles/bf16_left-inl.h"
#include "kernels/tiles/bf16_matmul-inl.h"
#include "kernels/tiles/bf16_softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rapt {
namespace HWY_NAMESPACE {

using RotateRows = void (*)(const RotaryRows& rows) noexcept;

template <class Engine, class Pairs>
constexpr RotateRows Rotation() {
#if HWY_TARGET == HWY_AVX3
  if constexpr (!std::is_same_v<Engine, PortablePairs>) return RotateWords<Pairs>;
#endif
  return nullptr;
}

template <class Engine>
inline constexpr PairKernels pair_kernels = {
    .engine = Engine::name,
    .begin = Engine::Begin,
    .end = Engine::End,
    .pack_left = PackLeft,
    .pack_columns = PackColumns,
    .scores = PairScores<Engine>,
    .gather = PairGather<Engine>,
    .gather_columns = PairGatherColumns<Engine>,
    .scale = ScaleRows,
    .absorb = AbsorbPairs,
    .erase = ErasePairs,
    .visit = VisitPairs<Engine>,
    .differentiate = DifferentiatePairs<Engine>,
    .differentiate_logits = DifferentiateLogits,
    .pack_numbers = PackNumbers,
    .pack_natural = PackNatural,
    .matrix = {.strip = block_rows,
               .panel = Engine::panel,
               .unit = pair_tile,
               .depth = pair_depth,
               .depth_unit = 2 * pair_tile,
               .pack_strips = PackPairStrips<Engine>,
               .pack_panels = PackPairPanels<Engine>,
               .product = PairMatrixProduct<Engine>},
    .rotate_far = Rotation<Engine, FarPairs>(),
    .rotate_near = Rotation<Engine, NearPairs>(),
    .transpose = TransposeColumns,
    .peak_loop = Engine::PeakLoop,
};

const PairKernels* PairKernelsOfTarget(PairEngine engine) {
#if HWY_TARGET == HWY_AVX3
  if (engine == PairEngine::tiles) return &pair_kernels<TilePairs>;
  if (engine == PairEngine::vectors) return &pair_kernels<VectorPairs>;
#endif
  return engine == PairEngine::portable ? &pair_kernels<PortablePairs> : nullptr;
}

}  // namespace HWY_NAMESPACE
}  // namespace rapt
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rapt {

HWY_EXPORT(PairKernelsOfTarget);

const PairKernels* pair_kernels_of(PairEngine engine) {
  const bool usable = engine == PairEngine::portable ||
                      (engine == PairEngine::tiles ? amx().usable : has_avx512_bf16());
  return usable ? HWY_DYNAMIC_DISPATCH(PairKernelsOfTarget)(engine) : nullptr;
}

}  // namespace rapt
#endif
