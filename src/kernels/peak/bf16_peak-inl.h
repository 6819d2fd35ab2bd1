// The peak of bf16 products: as many as each engine can do from registers.
#if defined(RAPT_BF16_PEAK_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RAPT_BF16_PEAK_INL_H
#undef RAPT_BF16_PEAK_INL_H
#else
#define RAPT_BF16_PEAK_INL_H
#endif

#include "kernels/tiles/bf16_matmul-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rapt::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// The portable engine exists for tests; this is the speed of its block from L1.
inline double PortableBf16::PeakLoop(Index iterations) noexcept {
  alignas(64) Bf16 a[block_rows * 32] = {};
  alignas(64) Bf16 b[16 * 32] = {};
  alignas(64) float c[block_rows * 16] = {};
  for (Index i = 0; i < iterations; ++i) Multiply<Store::add>({a, 32, b, 32, 16, c, 16, 16});
  volatile float keep = c[0];
  (void)keep;
  return 2.0 * block_rows * 16 * 32 * static_cast<double>(iterations);
}

#if HWY_TARGET == HWY_AVX3

inline double Avx512Bf16::PeakLoop(Index iterations) noexcept {
  constexpr int chains = 12;
  const VU one = hn::Set(DU(), 0x3F803F80u);
  VF acc[chains];
#pragma GCC unroll 16
  for (int i = 0; i < chains; ++i) acc[i] = hn::Zero(DF());
  for (Index k = 0; k < iterations; ++k) {
#pragma GCC unroll 16
    for (int i = 0; i < chains; ++i) acc[i] = AddBf16Products(acc[i], one, one);
  }
  VF total = acc[0];
#pragma GCC unroll 16
  for (int i = 1; i < chains; ++i) total = hn::Add(total, acc[i]);
  volatile float keep = hn::GetLane(total);
  (void)keep;
  return 4.0 * chains * static_cast<double>(lane_count) * static_cast<double>(iterations);
}

/// Four independent sums hide the latency of a tile product.
inline double AmxBf16::PeakLoop(Index iterations) noexcept {
  Tiles::zero<0>(), Tiles::zero<1>(), Tiles::zero<2>(), Tiles::zero<3>();
  Tiles::zero<4>(), Tiles::zero<5>(), Tiles::zero<6>(), Tiles::zero<7>();
  for (Index i = 0; i < iterations; ++i) {
    Tiles::multiply<0, 4, 6>();
    Tiles::multiply<1, 4, 7>();
    Tiles::multiply<2, 5, 6>();
    Tiles::multiply<3, 5, 7>();
  }
  return 4.0 * 2 * 16 * 16 * 32 * static_cast<double>(iterations);
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace rapt::detail
HWY_AFTER_NAMESPACE();
#endif
