// Hashed attention: the largest of many rotations, and which sorted queries see which sorted keys.
#if defined(RAPT_SORTED_MASKS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RAPT_SORTED_MASKS_INL_H
#undef RAPT_SORTED_MASKS_INL_H
#else
#define RAPT_SORTED_MASKS_INL_H
#endif

#include "kernels/tiles/matmul-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rapt::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DI = hn::RebindToSigned<DF>;
using VI = hn::Vec<DI>;

/// best[c] = the first place of the largest among numbers[0..rows)[c] and their negatives, which
/// count as places rows .. 2 rows - 1; for 64 columns.
inline void SignedArgmax(const float* numbers, Index rows, std::int32_t* best) noexcept {
  const DF d;
  const DI di;
  for (Index c = 0; c < tile; c += lane_count) {
    VF most = hn::LoadU(d, numbers + c), least = most;
    VI at_most = hn::Zero(di), at_least = at_most;
    for (Index r = 1; r < rows; ++r) {
      const VF x = hn::LoadU(d, numbers + r * tile + c);
      const VI here = hn::Set(di, static_cast<std::int32_t>(r));
      at_most = hn::IfThenElse(hn::RebindMask(di, hn::Gt(x, most)), here, at_most);
      at_least = hn::IfThenElse(hn::RebindMask(di, hn::Lt(x, least)), here, at_least);
      most = hn::Max(x, most);
      least = hn::Min(x, least);
    }
    const auto negative = hn::RebindMask(di, hn::Gt(hn::Neg(least), most));
    const VI offset = hn::Set(di, static_cast<std::int32_t>(rows));
    hn::StoreU(hn::IfThenElse(negative, hn::Add(at_least, offset), at_most), di, best + c);
  }
}

/// 64 lanes' comparisons as one word.
template <class Test>
HWY_INLINE std::uint64_t WordOf(const std::int32_t* numbers, const Test& test) {
  const DI di;
  std::uint64_t word = 0;
  for (Index c = 0; c < tile; c += lane_count) {
    std::uint8_t bits[8] = {};
    hn::StoreMaskBits(di, test(hn::LoadU(di, numbers + c)), bits);
    std::uint64_t part = 0;
    __builtin_memcpy(&part, bits, sizeof part);
    word |= (part & (lane_count == 64 ? ~0ull : (1ull << lane_count) - 1)) << c;
  }
  return word;
}

inline void SortedMasks(const std::int32_t* queries, const std::int32_t* lows,
                        const std::int32_t* highs, Index rows, const std::int32_t* keys,
                        std::uint64_t* visible, std::uint64_t* same) noexcept {
  const DI di;
  for (Index r = 0; r < rows; ++r) {
    const VI low = hn::Set(di, lows[r] - 1), high = hn::Set(di, highs[r]);
    const VI here = hn::Set(di, queries[r]);
    visible[r] = WordOf(keys, [&](VI k) { return hn::And(hn::Gt(k, low), hn::Lt(k, high)); });
    same[r] = queries[r] < 0 ? 0 : WordOf(keys, [&](VI k) { return hn::Eq(k, here); });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace rapt::detail
HWY_AFTER_NAMESPACE();
#endif
