// Operands of a matrix product into groups of lines: [group][depth][lines of a group], zeros where
// there is no line. Rows of a left operand and columns of a right one are lines along the depth; in
// memory they are contiguous or interleaved.
#if defined(RAPT_GEMM_PACK_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RAPT_GEMM_PACK_INL_H
#undef RAPT_GEMM_PACK_INL_H
#else
#define RAPT_GEMM_PACK_INL_H
#endif

#include "kernels/common/convert-inl.h"
#include "kernels/nn/gemm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rapt::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Four lines along the depth to out[k * width + line].
template <class T>
HWY_INLINE void TransposeFourLines(const T* from, Index step, Index depth, float* out,
                                   Index width) {
  Index k = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::Full128<float> d;
  const hn::Repartition<double, hn::Full128<float>> d2;
  for (; k + 4 <= depth; k += 4) {
    hn::Vec<hn::Full128<float>> r[4];
    for (int i = 0; i < 4; ++i) r[i] = LoadFloats(d, from + i * step + k);
    const auto low01 = hn::BitCast(d2, hn::InterleaveLower(d, r[0], r[1]));
    const auto low23 = hn::BitCast(d2, hn::InterleaveLower(d, r[2], r[3]));
    const auto high01 = hn::BitCast(d2, hn::InterleaveUpper(d, r[0], r[1]));
    const auto high23 = hn::BitCast(d2, hn::InterleaveUpper(d, r[2], r[3]));
    float* to = out + k * width;
    hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d2, low01, low23)), d, to);
    hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d2, low01, low23)), d, to + width);
    hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d2, high01, high23)), d, to + 2 * width);
    hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d2, high01, high23)), d, to + 3 * width);
  }
#endif
  for (; k < depth; ++k)
    for (Index i = 0; i < 4; ++i) out[k * width + i] = static_cast<float>(from[i * step + k]);
}

/// A group of contiguous lines.
template <class T>
HWY_INLINE void PackLines(const T* from, const MatrixLines& lines, Index count, Index width,
                          float* out) {
  Index i = 0;
  for (; i + 4 <= count; i += 4)
    TransposeFourLines(from + i * lines.step, lines.step, lines.depth, out + i, width);
  for (; i < width; ++i)
    for (Index k = 0; k < lines.depth; ++k)
      out[k * width + i] = i < count ? static_cast<float>(from[i * lines.step + k]) : 0;
}

/// Depths [begin, end) of a group of interleaved lines.
template <class T>
HWY_INLINE void PackColumns(const T* from, const MatrixLines& lines, Index begin, Index end,
                            Index count, Index width, float* out) {
  const hn::CappedTag<float, (matrix_strip < lane_count ? matrix_strip : lane_count)> d;
  constexpr Index step = hn::MaxLanes(decltype(d)());
  for (Index k = begin; k < end; ++k) {
    const T* row = from + k * lines.depth_step;
    float* to = out + k * width;
    Index i = 0;
    for (; i + step <= count; i += step) hn::StoreU(LoadFloats(d, row + i), d, to + i);
    for (; i < width; ++i) to[i] = i < count ? static_cast<float>(row[i]) : 0;
  }
}

/// Depths that one pass over all groups takes: a line of cache is then read whole while it is near,
/// and written whole.
inline constexpr Index depths_at_once = 8;

/// `group` lines each; the last group is as wide as its lines need in whole `unit`s.
template <Index group, Index unit>
void PackGroups(const MatrixLines& lines, float* out) noexcept {
  Dispatch(lines.data, lines.type, [&](const auto* from) {
    const auto width_of = [&](Index first) {
      return std::min(group, (lines.count - first + unit - 1) / unit * unit);
    };
    if (lines.depth_step == 1) {
      for (Index first = 0; first < lines.count; first += group)
        PackLines(from + first * lines.step, lines, std::min(group, lines.count - first),
                  width_of(first), out + first * lines.depth);
      return;
    }
    for (Index begin = 0; begin < lines.depth; begin += depths_at_once)
      for (Index first = 0; first < lines.count; first += group)
        PackColumns(from + first, lines, begin, std::min(lines.depth, begin + depths_at_once),
                    std::min(group, lines.count - first), width_of(first),
                    out + first * lines.depth);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace rapt::detail
HWY_AFTER_NAMESPACE();
#endif
