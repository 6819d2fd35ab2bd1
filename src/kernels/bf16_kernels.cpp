#include "kernels/bf16_kernels.h"

#include <vector>

#include "kernels/cpu_features.h"
#include "kernels/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/bf16_kernels.cpp"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/nn/bf16_gemm-inl.h"
#include "kernels/nn/bf16_rope-inl.h"
#include "kernels/peak/bf16_peak-inl.h"
#include "kernels/tiles/bf16_backward-inl.h"
#include "kernels/tiles/bf16_left-inl.h"
#include "kernels/tiles/bf16_matmul-inl.h"
#include "kernels/tiles/bf16_softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rapt::detail {
namespace HWY_NAMESPACE {

template <class Engine>
inline constexpr TileKernels<Bf16> bf16_tile_kernels = {
    .depth_unit = 32,
    .width_unit = max_lanes,
    .pack_strips = PackBf16Strips,
    .pack_columns = PackBf16Columns,
    .pack_panels = PackBf16Panels,
    .pack_rows = PackBf16Rows,
    .scores = Bf16Scores<Engine>,
    .accumulate_values = Bf16AccumulateValues<Engine>,
    .accumulate_transposed = Bf16AccumulateTransposed<Engine>,
    .scale = ScaleRows,
    .online_softmax = Bf16OnlineSoftmax,
    .zero_dropped = ZeroDropped,
    .forward = Bf16Forward<Engine>,
    .backward = Bf16Backward<Engine>,
    .softmax_backward = Bf16SoftmaxBackward,
    .pack_scores = PackBf16Scores,
    .pack_interleaved = PackBf16Interleaved,
    .transpose = TransposeColumns,
};

template <class Engine>
inline constexpr Bf16Kernels bf16_kernels = {
    .engine = Engine::name,
    .begin = Engine::Begin,
    .end = Engine::End,
    .tiles = bf16_tile_kernels<Engine>,
    .matrix = {.strip = block_rows,
               .panel = Engine::panel,
               .unit = bf16_square,
               .depth = bf16_block_depth,
               .depth_unit = 2 * bf16_square,
               .pack_strips = PackBf16MatrixStrips<Engine>,
               .pack_panels = PackBf16MatrixPanels<Engine>,
               .product = Bf16MatrixProduct<Engine>},
    .peak_loop = Engine::PeakLoop,
};

const Bf16Kernels* Bf16KernelsOfTarget(Bf16Engine engine) {
#if HWY_TARGET == HWY_AVX3
  if (engine == Bf16Engine::amx) return &bf16_kernels<AmxBf16>;
  if (engine == Bf16Engine::avx512) return &bf16_kernels<Avx512Bf16>;
#endif
  return engine == Bf16Engine::portable ? &bf16_kernels<PortableBf16> : nullptr;
}

const RopeKernels* RopeKernelsOfTarget() {
#if HWY_TARGET == HWY_AVX3
  static constexpr RopeKernels kernels = {RotateBf16<HalfSplitPairs>, RotateBf16<InterleavedPairs>};
  return &kernels;
#else
  return nullptr;
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace rapt::detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rapt::detail {

HWY_EXPORT(Bf16KernelsOfTarget);
HWY_EXPORT(RopeKernelsOfTarget);

const Bf16Kernels* bf16_kernels_of(Bf16Engine engine) {
  const bool usable = engine == Bf16Engine::portable ||
                      (engine == Bf16Engine::amx ? amx().usable : has_avx512_bf16());
  return usable ? HWY_DYNAMIC_DISPATCH(Bf16KernelsOfTarget)(engine) : nullptr;
}

const RopeKernels* bf16_rope_kernels() {
  return has_avx512_bf16() ? HWY_DYNAMIC_DISPATCH(RopeKernelsOfTarget)() : nullptr;
}

}  // namespace rapt::detail
#endif
