// Dropout: random bits are a function of the seed and the place of a number.
#if defined(RAPT_DROPOUT_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RAPT_DROPOUT_INL_H
#undef RAPT_DROPOUT_INL_H
#else
#define RAPT_DROPOUT_INL_H
#endif

#include "kernels/score_kernels.h"
#include "kernels/tiles/matmul-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rapt::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DU = hn::RebindToUnsigned<DF>;
using VU = hn::Vec<DU>;

/// Low and high words of a * factor.
struct WideProduct {
  VU low, high;
};
HWY_INLINE WideProduct MulWide(VU a, std::uint32_t factor) {
  const DU d;
#if HWY_TARGET == HWY_SCALAR
  const std::uint64_t product = std::uint64_t{factor} * hn::GetLane(a);
  return {hn::Set(d, static_cast<std::uint32_t>(product)),
          hn::Set(d, static_cast<std::uint32_t>(product >> 32))};
#else
  const hn::Repartition<std::uint64_t, DU> d64;
  const VU f = hn::Set(d, factor);
  const auto even = hn::MulEven(a, f);
  const auto odd = hn::MulEven(hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(d64, a))), f);
  return {hn::OddEven(hn::BitCast(d, hn::ShiftLeft<32>(odd)), hn::BitCast(d, even)),
          hn::OddEven(hn::BitCast(d, odd), hn::BitCast(d, hn::ShiftRight<32>(even)))};
#endif
}

/// Philox4x32-10 of the counters (first + lane, row, stream, 0); word w of lane i decides column
/// 4 (first + i) + w.
HWY_INLINE void Philox(const DropoutTile& how, std::uint32_t row, std::uint32_t first,
                       VU (&word)[4]) {
  const DU d;
  word[0] = hn::Iota(d, first);
  word[1] = hn::Set(d, row);
  word[2] = hn::Set(d, how.stream);
  word[3] = hn::Zero(d);
  std::uint32_t key0 = how.key[0];
  std::uint32_t key1 = how.key[1];
  for (int round = 0; round < 10; ++round) {
    const WideProduct a = MulWide(word[0], 0xD2511F53u), b = MulWide(word[2], 0xCD9E8D57u);
    word[0] = hn::Xor(hn::Xor(b.high, word[1]), hn::Set(d, key0));
    word[1] = b.low;
    word[2] = hn::Xor(hn::Xor(a.high, word[3]), hn::Set(d, key1));
    word[3] = a.low;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
}

/// Zero where a number is dropped (even a NaN), times `keep` elsewhere.
inline void Drop(float* scores, Index rows, const DropoutTile& how) noexcept {
  const DF d;
  const DU du;
  const VF keep = hn::Set(d, how.keep);
  // Nothing is above the largest word: a threshold of 2^32 drops all.
  const bool all = how.threshold > 0xFFFFFFFFu;
  const VU threshold = hn::Set(du, static_cast<std::uint32_t>(how.threshold));
  std::uint32_t words[4 * lane_count];
  for (Index r = 0; r < rows; ++r) {
    for (Index c = 0; c < tile; c += 4 * lane_count) {
      VU word[4];
      Philox(how, how.row + static_cast<std::uint32_t>(r),
             (how.column + static_cast<std::uint32_t>(c)) / 4, word);
      hn::StoreInterleaved4(word[0], word[1], word[2], word[3], du, words);
      for (Index i = 0; i < 4 * lane_count; i += lane_count) {
        float* at = scores + r * tile + c + i;
        const auto dropped = hn::RebindMask(d, hn::Lt(hn::LoadU(du, words + i), threshold));
        const VF kept = hn::IfThenZeroElse(dropped, hn::Mul(hn::LoadU(d, at), keep));
        hn::StoreU(all ? hn::Zero(d) : kept, d, at);
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace rapt::detail
HWY_AFTER_NAMESPACE();
#endif
