// The exact online softmax of a tile of query rows.
//
// Two sweeps over the scores: one for the row maximum (and the mask), one for exp2 and the sum. p
// is relative to a running max that follows the maximum only when it grows by more than 2^8, so the
// output accumulators are almost never rescaled; the final division uses the same running max, so
// the result is exact all the same.
#if defined(RAPT_SOFTMAX_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RAPT_SOFTMAX_INL_H
#undef RAPT_SOFTMAX_INL_H
#else
#define RAPT_SOFTMAX_INL_H
#endif

#include <limits>

#include "kernels/common/math-inl.h"
#include "kernels/tiles/matmul-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rapt::detail {
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

HWY_INLINE VF RowMax(const float* row) {
  const DF d;
  VF even = hn::Load(d, row);
  VF odd = even;
#pragma GCC unroll 4
  for (Index c = 0; c < tile; c += 2 * lane_count) {
    even = hn::Max(even, hn::Load(d, row + c));
    odd = hn::Max(odd, hn::Load(d, row + c + lane_count));
  }
  return hn::Max(even, odd);
}

/// Hides the keys outside the mask, then as RowMax.
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
inline constexpr StatPower stat_powers[] = {{stat_largest, 1}, {stat_others, 1},
                                            {stat_others2, 2}, {stat_others3, 3},
                                            {stat_pz, 1},      {stat_distance, 1}};

inline HWY_NOINLINE void RescaleStats(SoftmaxTile& state, Index r, float factor) {
  for (const auto [stat, power] : stat_powers) {
    float f = factor;
    for (int i = 1; i < power; ++i) f *= factor;
    Multiply(LaneStat(state, stat, r), lane_count, f);
    state.stats[stat * tile + r] *= static_cast<double>(f);
  }
}

/// The row's maximum grew: makes p relative to the new one.
inline HWY_NOINLINE void Rescale(SoftmaxTile& state, Index r, float most) {
  const float old = state.running_max[r];
  state.running_max[r] = most;
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

/// Vectors that go through exp2 together.
inline constexpr int together = 2;

template <int n>
HWY_INLINE VF TreeSum(const VF (&x)[n]) {
  if constexpr (n == 1) {
    return x[0];
  } else {
    VF half[n / 2];
#pragma GCC unroll 8
    for (int i = 0; i < n / 2; ++i) half[i] = hn::Add(x[i], x[i + n / 2]);
    return TreeSum(half);
  }
}

/// p in place of the scores; the row's sum grows by at most eight vectors at a time, so that narrow
/// vectors do not make long chains of f32 additions. Vectors are added in pairs and eights counted
/// from the tile's first column, whatever the clip is: a row has the same bits in any tile.
HWY_INLINE void Exponentiate(float* row, Clip clip, float running_max, float* lane_sums) {
  constexpr Index pair = together * lane_count;
  constexpr Index eight = 8 * lane_count;
  const DF d;
  const VF base = hn::Set(d, std::max(running_max, -std::numeric_limits<float>::max()));
  VF total = hn::Load(d, lane_sums);
  for (Index first = clip.begin; first < clip.end; first = first / eight * eight + eight) {
    const Index end = std::min(clip.end, first / eight * eight + eight);
    VF sum = hn::Zero(d);
    Index c = first;
    if (c % pair != 0) {
      sum = Exp2(d, hn::Sub(hn::Load(d, row + c), base));
      hn::Store(sum, d, row + c);
      c += lane_count;
    }
    for (; c + pair <= end; c += pair) {
      VF p[together];
#pragma GCC unroll 8
      for (int i = 0; i < together; ++i)
        p[i] = hn::Sub(hn::Load(d, row + c + i * lane_count), base);
      Exp2Each(d, p);
#pragma GCC unroll 8
      for (int i = 0; i < together; ++i) hn::Store(p[i], d, row + c + i * lane_count);
      sum = hn::Add(sum, TreeSum(p));
    }
    for (; c < end; c += lane_count) {
      const VF p = Exp2(d, hn::Sub(hn::Load(d, row + c), base));
      hn::Store(p, d, row + c);
      sum = hn::Add(sum, p);
    }
    total = hn::Add(total, sum);
  }
  hn::Store(total, d, lane_sums);
}

/// The same, also collecting what Stats are made of. |distance - c| is how far key c is from the
/// row's query.
HWY_INLINE void ExponentiateStats(float* row, Clip clip, SoftmaxTile& state, Index r,
                                  float distance) {
  const DF d;
  const float running_max = state.running_max[r];
  const VF base = hn::Set(d, running_max == minus_infinity ? 0.0f : running_max);
  const VF shift = hn::Set(d, state.shift[r]);
  float* lane_sums = state.lane_sums + r * max_lanes;
  VF sum = hn::Zero(d);
  VF s[stat_count];
  for (int i = 0; i < stat_count; ++i) s[i] = hn::Load(d, LaneStat(state, static_cast<Stat>(i), r));
  VF away = hn::Sub(hn::Set(d, distance), hn::Iota(d, static_cast<float>(clip.begin)));
  const VF step = hn::Set(d, static_cast<float>(lane_count));
  for (Index c = clip.begin; c < clip.end; c += lane_count) {
    const VF z = hn::Load(d, row + c);
    const VF p = Exp2(d, hn::Sub(z, base));
    hn::Store(p, d, row + c);
    sum = hn::Add(sum, p);
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
  hn::Store(hn::Add(hn::Load(d, lane_sums), sum), d, lane_sums);
  for (int i = 0; i < stat_count; ++i) hn::Store(s[i], d, LaneStat(state, static_cast<Stat>(i), r));
}

/// First sweep: masks, maxima, and a new running max where a maximum outgrew the old one.
template <bool masked>
HWY_INLINE void UpdateRunningMax(float* scores, Index rows, const Clip* clips,
                                 const std::uint64_t* masks, SoftmaxTile& state) {
  const DF d;
  for (Index r = 0; r < rows; ++r) {
    float* row = scores + r * tile;
    const VF most = masked ? MaskedRowMax(row, clips[r / strip], masks[r]) : RowMax(row);
    if (HWY_UNLIKELY(!hn::AllFalse(d, hn::Gt(most, hn::Set(d, state.running_max[r] + slack))))) {
      Rescale(state, r, hn::GetLane(hn::MaxOfLanes(d, most)));
    }
  }
}

inline void OnlineSoftmax(float* scores, Index rows, const Clip* clips, const std::uint64_t* masks,
                          SoftmaxTile& state) noexcept {
  if (clips == nullptr) {
    UpdateRunningMax<false>(scores, rows, clips, masks, state);
    for (Index r = 0; r < rows; ++r) {
      Exponentiate(scores + r * tile, whole_row, state.running_max[r],
                   state.lane_sums + r * max_lanes);
    }
    return;
  }
  UpdateRunningMax<true>(scores, rows, clips, masks, state);
  for (Index r = 0; r < rows; ++r) {
    Exponentiate(scores + r * tile, clips[r / strip], state.running_max[r],
                 state.lane_sums + r * max_lanes);
  }
}

HWY_INLINE void FlushLanes(float* lanes, double* sum, bool add) {
  double total = add ? *sum : 0;
  for (Index l = 0; l < lane_count; ++l) total += static_cast<double>(lanes[l]);
  *sum = total;
  for (Index l = 0; l < lane_count; ++l) lanes[l] = 0;
}

HWY_INLINE void FlushStats(SoftmaxTile& state, Index r) {
  for (int i = stat_largest + 1; i < stat_count; ++i) {
    FlushLanes(LaneStat(state, static_cast<Stat>(i), r), state.stats + i * tile + r, true);
  }
}

inline void OnlineSoftmaxStats(float* scores, Index rows, const Clip* clips,
                               const std::uint64_t* masks, SoftmaxTile& state,
                               Index distance) noexcept {
  if (clips == nullptr) {
    UpdateRunningMax<false>(scores, rows, clips, masks, state);
  } else {
    UpdateRunningMax<true>(scores, rows, clips, masks, state);
  }
  for (Index r = 0; r < rows; ++r) {
    const Clip clip = ClipOf(clips, r);
    for (Index first = clip.begin; first < clip.end; first += 8 * lane_count) {
      const Clip part{first, std::min(clip.end, first + 8 * lane_count)};
      ExponentiateStats(scores + r * tile, part, state, r, static_cast<float>(distance + r));
      if constexpr (lane_count < 8)
        FlushStats(state, r);  // narrow vectors would make long f32 chains
    }
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

/// Moves the f32 sums into the f64 ones: what keeps a million keys exact.
inline void Flush(SoftmaxTile& state, Index rows) noexcept {
  const Index count = rows * state.width;
  if (state.wide_used) {
    WidenInto<Store::add>(state.out, state.wide, count);
  } else {
    WidenInto<Store::set>(state.out, state.wide, count);
  }
  for (Index r = 0; r < rows; ++r)
    FlushLanes(state.lane_sums + r * max_lanes, state.sums + r, state.wide_used);
  if (state.shift != nullptr) {
    for (Index r = 0; r < rows; ++r) FlushStats(state, r);
  }
  state.wide_used = true;
}

/// Rounded to f32; what is too large becomes an infinity.
template <class DN, class VW>
HWY_INLINE auto Narrowed(DN dn, VW x) {
#if HWY_TARGET == HWY_SCALAR
  return hn::Set(dn, static_cast<float>(x.raw));  // Highway's own stops at the largest f32
#else
  return hn::DemoteTo(dn, x);
#endif
}

/// out = (wide + rest) * factor, rounded once
HWY_INLINE void NarrowRow(const double* wide, const float* rest, double factor, Index count,
                          float* out) {
  const hn::ScalableTag<double> dw;
  const hn::Rebind<float, decltype(dw)> dn;
  const Index step = static_cast<Index>(hn::Lanes(dw));
  const auto f = hn::Set(dw, factor);
  Index i = 0;
  for (; i + step <= count; i += step) {
    auto x = hn::PromoteTo(dw, hn::LoadU(dn, rest + i));
    if (wide != nullptr) x = hn::Add(x, hn::LoadU(dw, wide + i));
    hn::StoreU(Narrowed(dn, hn::Mul(x, f)), dn, out + i);
  }
  for (; i < count; ++i) {
    const double x = static_cast<double>(rest[i]) + (wide == nullptr ? 0.0 : wide[i]);
    out[i] = static_cast<float>(x * factor);
  }
}

inline void Finish(const SoftmaxTile& state, Index row, double factor, Index dim,
                   float* out) noexcept {
  const double* wide = state.wide_used ? state.wide + row * state.width : nullptr;
  NarrowRow(wide, state.out + row * state.width, factor, dim, out);
}

}  // namespace HWY_NAMESPACE
}  // namespace rapt::detail
HWY_AFTER_NAMESPACE();
#endif
