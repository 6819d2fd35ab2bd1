// The exact running softmax of a tile of query rows.
//
// Two sweeps over the scores: one for the row maximum (and the mask), one for exp2 and the sum. p is measured from a reference
// that follows the maximum only when it grows by more than 2^8, so the output accumulators are almost never rescaled; the final
// division uses the same reference, which makes the result exact all the same.
#if defined(RAPT_SOFTMAX_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RAPT_SOFTMAX_INL_H
#undef RAPT_SOFTMAX_INL_H
#else
#define RAPT_SOFTMAX_INL_H
#endif

#include <limits>

#include "kernels/math-inl.h"
#include "kernels/product-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rapt {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline constexpr float minus_infinity = -std::numeric_limits<float>::infinity();
inline constexpr float slack = 8;  // log2 of how far p may exceed 1

using Mask = hn::Mask<DF>;

/// Lanes whose bit is set in the word, starting at bit `column`.
HWY_INLINE Mask BitsToMask(std::uint64_t word, Index column) {
  const std::uint64_t bits = word >> column;
  return hn::LoadMaskBits(DF(), reinterpret_cast<const std::uint8_t*>(&bits));
}

HWY_INLINE VF RowMax(const float* row, Clip clip) {
  const DF d;
  VF most = hn::Set(d, minus_infinity);
  for (Index c = clip.begin; c < clip.end; c += lane_count) most = hn::Max(most, hn::Load(d, row + c));
  return most;
}

/// Hides the pairs outside the mask, then as RowMax.
HWY_INLINE VF MaskedRowMax(float* row, Clip clip, std::uint64_t word) {
  const DF d;
  const VF hidden = hn::Set(d, minus_infinity);
  VF most = hidden;
  for (Index c = clip.begin; c < clip.end; c += lane_count) {
    const VF z = hn::IfThenElse(BitsToMask(word, c), hn::Load(d, row + c), hidden);
    hn::Store(z, d, row + c);
    most = hn::Max(most, z);
  }
  return most;
}

template <class T>
HWY_INLINE void Multiply(T* numbers, Index count, T factor) {
  for (Index i = 0; i < count; ++i) numbers[i] *= factor;
}

HWY_INLINE float ScalarExp2(float x) { return hn::GetLane(Exp2(DF(), hn::Set(DF(), x))); }

inline float* LaneStat(SoftmaxTile& state, Stat stat, Index r) {
  return state.lane_stats + (stat * tile + r) * max_lanes;
}

/// Statistics that are sums of p^power.
struct StatPower {
  Stat stat;
  int power;
};
inline constexpr StatPower stat_powers[] = {{stat_largest, 1}, {stat_others, 1}, {stat_others2, 2},
                                            {stat_others3, 3}, {stat_pz, 1},     {stat_distance, 1}};

HWY_NOINLINE void RescaleStats(SoftmaxTile& state, Index r, float factor) {
  for (const auto [stat, power] : stat_powers) {
    float f = factor;
    for (int i = 1; i < power; ++i) f *= factor;
    Multiply(LaneStat(state, stat, r), lane_count, f);
    state.stats[stat * tile + r] *= static_cast<double>(f);
  }
}

/// The row's maximum grew: measure p from the new one.
HWY_NOINLINE void Rescale(SoftmaxTile& state, Index r, float most) {
  const float old = state.reference[r];
  state.reference[r] = most;
  if (old == minus_infinity) {
    if (state.shift != nullptr) state.shift[r] = most;
    return;
  }
  const float factor = ScalarExp2(old - most);
  Multiply(state.lane_sums + r * max_lanes, lane_count, factor);
  Multiply(state.out + r * state.width, state.width, factor);
  if (state.wide_used) {
    state.sums[r] *= static_cast<double>(factor);
    Multiply(state.wide + r * state.width, state.width, static_cast<double>(factor));
  }
  if (state.shift != nullptr) RescaleStats(state, r, factor);
}

/// p in place of the scores; the row's sum grows.
HWY_INLINE void Exponentiate(float* row, Clip clip, float reference, float* lane_sums) {
  const DF d;
  const VF base = hn::Set(d, reference == minus_infinity ? 0.0f : reference);
  VF sum = hn::Zero(d);
#pragma GCC unroll 4
  for (Index c = clip.begin; c < clip.end; c += lane_count) {
    const VF p = Exp2(d, hn::Sub(hn::Load(d, row + c), base));
    hn::Store(p, d, row + c);
    sum = hn::Add(sum, p);
  }
  hn::Store(hn::Add(hn::Load(d, lane_sums), sum), d, lane_sums);
}

/// The same, also collecting what Stats are made of. |distance - c| is how far key c is from the row's query.
HWY_INLINE void ExponentiateStats(float* row, Clip clip, SoftmaxTile& state, Index r, float distance) {
  const DF d;
  const float reference = state.reference[r];
  const VF base = hn::Set(d, reference == minus_infinity ? 0.0f : reference);
  const VF shift = hn::Set(d, state.shift[r]);
  VF s[stat_count];
  for (int i = 0; i < stat_count; ++i) s[i] = hn::Load(d, LaneStat(state, static_cast<Stat>(i), r));
  VF away = hn::Sub(hn::Set(d, distance), hn::Iota(d, static_cast<float>(clip.begin)));
  const VF step = hn::Set(d, static_cast<float>(lane_count));
  for (Index c = clip.begin; c < clip.end; c += lane_count) {
    const VF z = hn::Load(d, row + c);
    const VF p = Exp2(d, hn::Sub(z, base));
    hn::Store(p, d, row + c);
    const Mask seen = hn::Gt(z, hn::Set(d, minus_infinity));
    const VF u = hn::IfThenElseZero(seen, hn::Sub(z, shift));
    const VF other = hn::Min(s[stat_largest], p);
    const VF other2 = hn::Mul(other, other);
    s[stat_largest] = hn::Max(s[stat_largest], p);
    s[stat_others] = hn::Add(s[stat_others], other);
    s[stat_others2] = hn::Add(s[stat_others2], other2);
    s[stat_others3] = hn::MulAdd(other2, other, s[stat_others3]);
    s[stat_pz] = hn::MulAdd(p, u, s[stat_pz]);
    s[stat_z] = hn::Add(s[stat_z], u);
    s[stat_z2] = hn::MulAdd(u, u, s[stat_z2]);
    s[stat_seen] = hn::Add(s[stat_seen], hn::IfThenElseZero(seen, hn::Set(d, 1.0f)));
    s[stat_distance] = hn::MulAdd(p, hn::Abs(away), s[stat_distance]);
    away = hn::Sub(away, step);
  }
  for (int i = 0; i < stat_count; ++i) hn::Store(s[i], d, LaneStat(state, static_cast<Stat>(i), r));
}

template <bool with_stats, bool whole>
HWY_INLINE void AbsorbTile(float* scores, Index rows, const Clip* clips, const std::uint64_t* masks, SoftmaxTile& state,
                           Index distance) {
  const DF d;
  for (Index r = 0; r < rows; ++r) {
    const Clip clip = whole ? whole_row : clips[r / strip];
    float* row = scores + r * tile;
    const VF most = whole || masks == nullptr ? RowMax(row, clip) : MaskedRowMax(row, clip, masks[r]);
    if (!hn::AllFalse(d, hn::Gt(most, hn::Set(d, state.reference[r] + slack)))) {
      Rescale(state, r, hn::GetLane(hn::MaxOfLanes(d, most)));
    }
    if constexpr (with_stats) {
      ExponentiateStats(row, clip, state, r, static_cast<float>(distance + r));
    } else {
      Exponentiate(row, clip, state.reference[r], state.lane_sums + r * max_lanes);
    }
  }
}

void Absorb(float* scores, Index rows, const Clip* clips, const std::uint64_t* masks, SoftmaxTile& state) noexcept {
  if (clips == nullptr) {
    AbsorbTile<false, true>(scores, rows, clips, masks, state, 0);
  } else {
    AbsorbTile<false, false>(scores, rows, clips, masks, state, 0);
  }
}

void AbsorbStats(float* scores, Index rows, const Clip* clips, const std::uint64_t* masks, SoftmaxTile& state,
                 Index distance) noexcept {
  if (clips == nullptr) {
    AbsorbTile<true, true>(scores, rows, clips, masks, state, distance);
  } else {
    AbsorbTile<true, false>(scores, rows, clips, masks, state, distance);
  }
}

/// wide (+)= numbers; numbers = 0
template <Store store>
HWY_INLINE void WidenInto(float* numbers, double* wide, Index count) {
  const hn::ScalableTag<double> dw;
  const hn::Rebind<float, decltype(dw)> dn;
  const Index step = static_cast<Index>(hn::Lanes(dw));
  for (Index i = 0; i < count; i += step) {
    auto x = hn::PromoteTo(dw, hn::LoadU(dn, numbers + i));
    if constexpr (store == Store::add) x = hn::Add(x, hn::LoadU(dw, wide + i));
    hn::StoreU(x, dw, wide + i);
    hn::StoreU(hn::Zero(dn), dn, numbers + i);
  }
}

HWY_INLINE void FlushLanes(float* lanes, double* sum, bool add) {
  double total = add ? *sum : 0;
  for (Index l = 0; l < lane_count; ++l) total += static_cast<double>(lanes[l]);
  *sum = total;
  for (Index l = 0; l < lane_count; ++l) lanes[l] = 0;
}

/// Moves the f32 sums into the f64 ones: what keeps a million keys exact.
void Flush(SoftmaxTile& state, Index rows) noexcept {
  const Index count = rows * state.width;
  if (state.wide_used) {
    WidenInto<Store::add>(state.out, state.wide, count);
  } else {
    WidenInto<Store::set>(state.out, state.wide, count);
  }
  for (Index r = 0; r < rows; ++r) FlushLanes(state.lane_sums + r * max_lanes, state.sums + r, state.wide_used);
  if (state.shift != nullptr) {
    for (int i = stat_largest + 1; i < stat_count; ++i) {
      for (Index r = 0; r < rows; ++r) {
        FlushLanes(LaneStat(state, static_cast<Stat>(i), r), state.stats + i * tile + r, true);
      }
    }
  }
  state.wide_used = true;
}

/// out = (wide + rest) * factor, rounded once
HWY_INLINE void NarrowRow(const double* wide, const float* rest, double factor, Index count, float* out) {
  const hn::ScalableTag<double> dw;
  const hn::Rebind<float, decltype(dw)> dn;
  const Index step = static_cast<Index>(hn::Lanes(dw));
  const auto f = hn::Set(dw, factor);
  Index i = 0;
  for (; i + step <= count; i += step) {
    auto x = hn::PromoteTo(dw, hn::LoadU(dn, rest + i));
    if (wide != nullptr) x = hn::Add(x, hn::LoadU(dw, wide + i));
    hn::StoreU(hn::DemoteTo(dn, hn::Mul(x, f)), dn, out + i);
  }
  for (; i < count; ++i) {
    const double x = static_cast<double>(rest[i]) + (wide == nullptr ? 0.0 : wide[i]);
    out[i] = static_cast<float>(x * factor);
  }
}

void Finish(const SoftmaxTile& state, Index row, double factor, Index dim, float* out) noexcept {
  const double* wide = state.wide_used ? state.wide + row * state.width : nullptr;
  NarrowRow(wide, state.out + row * state.width, factor, dim, out);
}

}  // namespace HWY_NAMESPACE
}  // namespace rapt
HWY_AFTER_NAMESPACE();
#endif
