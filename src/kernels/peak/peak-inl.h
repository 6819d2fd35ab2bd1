// Loops that measure what the CPU can do at best: the peaks that benchmarks compare with.
#if defined(RAPT_PEAK_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RAPT_PEAK_INL_H
#undef RAPT_PEAK_INL_H
#else
#define RAPT_PEAK_INL_H
#endif

#include "kernels/common/math-inl.h"
#include "kernels/tiles/matmul-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rapt::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Twelve independent chains from registers: enough for four cycles of latency on three ports.
inline double FmaLoop(Index iterations) noexcept {
  constexpr int chains = 12;
  const DF d;
  const VF shrink = hn::Set(d, 0.999f);
  const VF grow = hn::Set(d, 1e-3f);
  VF acc[chains];
#pragma GCC unroll 16
  for (int i = 0; i < chains; ++i) acc[i] = hn::Set(d, 0.1f * static_cast<float>(i));
  for (Index k = 0; k < iterations; ++k) {
#pragma GCC unroll 16
    for (int i = 0; i < chains; ++i) acc[i] = hn::MulAdd(acc[i], shrink, grow);
  }
  VF total = acc[0];
#pragma GCC unroll 16
  for (int i = 1; i < chains; ++i) total = hn::Add(total, acc[i]);
  volatile float keep = hn::GetLane(total);
  (void)keep;
  return 2.0 * chains * static_cast<double>(lane_count) * static_cast<double>(iterations);
}

/// Any count: the tail goes through a padded vector, so a number's result never depends on its
/// place.
template <class Function>
HWY_INLINE void ForEachVector(const float* x, Index count, float* y, Function function) {
  const DF d;
  Index i = 0;
  for (; i + lane_count <= count; i += lane_count)
    hn::StoreU(function(hn::LoadU(d, x + i)), d, y + i);
  if (i == count) return;
  HWY_ALIGN float tail[lane_count] = {};
  std::copy(x + i, x + count, tail);
  hn::Store(function(hn::Load(d, tail)), d, tail);
  std::copy(tail, tail + (count - i), y + i);
}

struct Exp2Of {
  HWY_INLINE VF operator()(VF x) const { return Exp2(DF(), x); }
};
struct TanhOf {
  HWY_INLINE VF operator()(VF x) const { return Tanh(DF(), x); }
};

inline void Exp2Numbers(const float* x, Index count, float* y) noexcept {
  ForEachVector(x, count, y, Exp2Of());
}
inline void TanhNumbers(const float* x, Index count, float* y) noexcept {
  ForEachVector(x, count, y, TanhOf());
}

/// Sum of `count` numbers, a multiple of 64.
inline float ReadLoop(const float* x, Index count) noexcept {
  const DF d;
  VF acc[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  for (Index i = 0; i + 4 * lane_count <= count; i += 4 * lane_count) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) acc[j] = hn::Add(acc[j], hn::LoadU(d, x + i + j * lane_count));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(acc[0], acc[1]), hn::Add(acc[2], acc[3]))));
}

}  // namespace HWY_NAMESPACE
}  // namespace rapt::detail
HWY_AFTER_NAMESPACE();
#endif
