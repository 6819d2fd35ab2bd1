// Norms along rows, forward and back.
//
// Traffic per row: x read and y written; back, x and dy read and dx written over dy. The passes
// after the first find the row in the nearest cache. Moments are f64: that costs less than memory
// does, and rows far from zero, or of huge numbers, lose nothing.
#if defined(RAPT_NORM_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RAPT_NORM_INL_H
#undef RAPT_NORM_INL_H
#else
#define RAPT_NORM_INL_H
#endif

#include <cmath>

#include "kernels/network_kernels.h"
#include "kernels/nn/elementwise-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rapt::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Which moment a norm takes away before it divides by the next.
enum class Centre { mean, zero };

/// (x - mean) / deviation, lane by lane. The mean is in two parts, so that a row whose numbers are
/// much larger than their differences keeps those.
template <Centre centre>
struct Normalizer {
  explicit HWY_INLINE Normalizer(const RowMoments& moments)
      : mean(hn::Set(DF(), static_cast<float>(moments.mean))),
        mean_rest(hn::Set(
            DF(), static_cast<float>(moments.mean -
                                     static_cast<double>(static_cast<float>(moments.mean))))),
        inverse(hn::Set(DF(), static_cast<float>(moments.inverse))) {}

  HWY_INLINE VF operator()(VF x) const {
    if constexpr (centre == Centre::mean) x = hn::Sub(hn::Sub(x, mean), mean_rest);
    return hn::Mul(x, inverse);
  }
  VF mean, mean_rest, inverse;
};

template <Centre centre>
HWY_INLINE RowMoments MomentsOf(const float* x, Index width, double epsilon) {
  const double count = static_cast<double>(width);
  const double mean = centre == Centre::mean ? LineSum(x, width) / count : 0;
  const VW middle = hn::Set(DW(), mean);
  WideSum squares;
  InVectors<wide_count>(width, [&](Index i, auto part, auto chain) RAPT_INLINED {
    const VW off = Present(DW(), hn::Sub(LoadWide(x + i, part), middle), part);
    squares.chain[chain] = hn::MulAdd(off, off, squares.chain[chain]);
  });
  return {mean, 1 / std::sqrt(squares.Total() / count + epsilon)};
}

template <Centre centre>
HWY_INLINE void NormalizeRow(const NormRows& rows, Index row) {
  const float* x = rows.x + row * rows.width;
  float* y = rows.y + row * rows.width;
  rows.moments[row] = MomentsOf<centre>(x, rows.width, rows.epsilon);
  const Normalizer<centre> normal(rows.moments[row]);
  InVectors<lane_count>(rows.width, [&](Index i, auto part, auto) RAPT_INLINED {
    const VF z = normal(LoadPart(x + i, part)), gain = LoadPart(rows.gain + i, part);
    StorePart(rows.shift == nullptr ? hn::Mul(z, gain)
                                    : hn::MulAdd(z, gain, LoadPart(rows.shift + i, part)),
              y + i, part);
  });
}

template <Centre centre>
inline void Normalize(const NormRows& rows) noexcept {
  for (Index row = 0; row < rows.rows; ++row) NormalizeRow<centre>(rows, row);
}

/// Means over a row of g = dy gain and of g z, z being the normalized numbers.
struct GradientMeans {
  float plain, weighted;
};

/// Those means; also dgain += dy z, dshift += dy.
template <Centre centre>
HWY_INLINE GradientMeans MeansOfGradient(const NormGradients& rows, const float* x, const float* dy,
                                         const Normalizer<centre>& normal) {
  VW plain[2] = {hn::Zero(DW()), hn::Zero(DW())}, weighted[2] = {plain[0], plain[0]};
  InVectors<lane_count>(rows.width, [&](Index i, auto part, auto chain) RAPT_INLINED {
    const VF d = LoadPart(dy + i, part);
    const VF z = normal(LoadPart(x + i, part)), g = hn::Mul(d, LoadPart(rows.gain + i, part));
    constexpr int side = decltype(chain)::value % 2;
    plain[side] = hn::Add(plain[side], Folded(g));
    weighted[side] = hn::Add(weighted[side], Folded(hn::Mul(g, z)));
    StorePart(hn::MulAdd(d, z, LoadPart(rows.dgain + i, part)), rows.dgain + i, part);
    if (rows.dshift != nullptr)
      StorePart(hn::Add(d, LoadPart(rows.dshift + i, part)), rows.dshift + i, part);
  });
  const double count = static_cast<double>(rows.width);
  const auto mean = [&](const VW(&sum)[2]) {
    return static_cast<float>(hn::GetLane(hn::SumOfLanes(DW(), hn::Add(sum[0], sum[1]))) / count);
  };
  return {mean(plain), mean(weighted)};
}

template <Centre centre>
inline void NormalizeBack(const NormGradients& rows) noexcept {
  for (Index row = 0; row < rows.rows; ++row) {
    const float* x = rows.x + row * rows.width;
    float* dy = rows.dy + row * rows.width;
    const Normalizer<centre> normal(rows.moments[row]);
    const GradientMeans means = MeansOfGradient(rows, x, dy, normal);
    const VF plain = hn::Set(DF(), means.plain), weighted = hn::Set(DF(), means.weighted);
    InVectors<lane_count>(rows.width, [&](Index i, auto part, auto) RAPT_INLINED {
      VF g = hn::Mul(LoadPart(dy + i, part), LoadPart(rows.gain + i, part));
      if constexpr (centre == Centre::mean) g = hn::Sub(g, plain);
      const VF z = normal(LoadPart(x + i, part));
      StorePart(hn::Mul(hn::NegMulAdd(z, weighted, g), normal.inverse), dy + i, part);
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace rapt::detail
HWY_AFTER_NAMESPACE();
#endif
