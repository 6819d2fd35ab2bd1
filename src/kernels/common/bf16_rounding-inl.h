// Rounding to bf16 where the CPU has an instruction for it (AVX512-BF16); assembly because
// Highway's AVX-512 target does not include the extension.
#if defined(RAPT_BF16_ROUNDING_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RAPT_BF16_ROUNDING_INL_H
#undef RAPT_BF16_ROUNDING_INL_H
#else
#define RAPT_BF16_ROUNDING_INL_H
#endif

#include "kernels/tiles/matmul-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rapt::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_AVX3

using VHalves = hn::Vec<hn::ScalableTag<std::uint16_t>>;

/// The numbers of `first`, then those of `second`, to the nearest bf16, ties to even.
HWY_INLINE VHalves RoundBoth(VF first, VF second) {
  VHalves both;
  asm("vcvtne2ps2bf16 %1, %2, %0" : "=v"(both.raw) : "v"(first.raw), "v"(second.raw));
  return both;
}

/// The same interleaved: one of `first`, one of `second`, the next of `first`.
HWY_INLINE VHalves RoundInterleaved(VF first, VF second) {
  alignas(64) static constexpr std::uint16_t interleaved[32] = {
      0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
      8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  return VHalves{
      _mm512_permutexvar_epi16(_mm512_load_si512(interleaved), RoundBoth(first, second).raw)};
}

HWY_INLINE void StoreHalves(VHalves halves, Bf16* to) {
  hn::StoreU(halves, hn::ScalableTag<std::uint16_t>(), reinterpret_cast<std::uint16_t*>(to));
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace rapt::detail
HWY_AFTER_NAMESPACE();
#endif
