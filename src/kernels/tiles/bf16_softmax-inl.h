// The online softmax over bf16 probabilities. Rounding them costs up to 2^-8, so exp2 need not be
// better than 1e-4: half the polynomial.
// The sums are those of the rounded numbers, so that rounding up or down cancels between numerator
// and denominator.
#if defined(RAPT_BF16_SOFTMAX_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RAPT_BF16_SOFTMAX_INL_H
#undef RAPT_BF16_SOFTMAX_INL_H
#else
#define RAPT_BF16_SOFTMAX_INL_H
#endif

#include <cmath>

#include "kernels/tiles/bf16_matmul-inl.h"
#include "kernels/tiles/bf16_pack-inl.h"
#include "kernels/tiles/softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rapt::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// p[i] = terms[0] f^3 + terms[1] f^2 + terms[2] f + terms[3]
template <int n>
HWY_INLINE void Cubic(const VF (&f)[n], const float (&terms)[4], VF (&p)[n]) {
  const DF d;
#pragma GCC unroll 4
  for (int i = 0; i < n; ++i) p[i] = hn::MulAdd(hn::Set(d, terms[0]), f[i], hn::Set(d, terms[1]));
#pragma GCC unroll 4
  for (int term = 2; term < 4; ++term) {
#pragma GCC unroll 4
    for (int i = 0; i < n; ++i) p[i] = hn::MulAdd(p[i], f[i], hn::Set(d, terms[term]));
  }
}

#if HWY_TARGET == HWY_AVX3
// vscalef takes the floor of its exponent, so the polynomial covers [0, 1): within 8.6e-5 of 2^f,
// and less than that near 1, where a bf16 is off by the most. The fraction of -inf is 0, and 1
// scaled by -inf is 0.
inline constexpr float rough_terms[] = {0x1.3baadcp-4f, 0x1.d23788p-3f, 0x1.63e654p-1f, 1.0f};

/// p[i] 2^floor(x[i]) is 2^x[i], and `addend` more if p is not scaled yet.
template <int n>
HWY_INLINE void FractionsOfExp2(const VF (&x)[n], float addend, VF (&p)[n]) {
  VF f[n];
#pragma GCC unroll 4
  for (int i = 0; i < n; ++i) f[i] = VF{_mm512_reduce_ps(x[i].raw, 0x09)};
  Cubic(f, {rough_terms[0], rough_terms[1], rough_terms[2], rough_terms[3] + addend}, p);
}

/// x[i] = 2^x[i] within 8.6e-5 of itself; 0 at -inf, infinite from 128 on, NaN for NaN.
template <int n>
HWY_INLINE void RoughExp2Each(VF (&x)[n]) {
  VF p[n];
  FractionsOfExp2(x, 0.0f, p);
#pragma GCC unroll 4
  for (int i = 0; i < n; ++i) x[i] = VF{_mm512_scalef_ps(p[i].raw, x[i].raw)};
}

/// The same rounded to bf16, within 2^-8 of itself. The polynomial's last addition is to 2^16,
/// whose neighbours are 2^-7 away: a rounding for the price of a subtraction.
template <int n>
HWY_INLINE void RoundedExp2Each(VF (&x)[n]) {
  constexpr float rounder = 65536;
  VF p[n];
  FractionsOfExp2(x, rounder, p);
#pragma GCC unroll 4
  for (int i = 0; i < n; ++i) p[i] = hn::Sub(p[i], hn::Set(DF(), rounder));
#pragma GCC unroll 4
  for (int i = 0; i < n; ++i) x[i] = VF{_mm512_scalef_ps(p[i].raw, x[i].raw)};
}
#else
/// x[i] = 2^x[i] within 7.5e-5 of itself up to 127, 2^127 beyond; 0 at -inf, NaN for NaN. As
/// Exp2Each does it, over [-1/2, 1/2].
template <int n>
HWY_INLINE void RoughExp2Each(VF (&x)[n]) {
  constexpr float terms[] = {0x1.c3f760p-5f, 0x1.f0de1ap-3f, 0x1.62f31ap-1f, 0x1.fff692p-1f};
  const DF d;
  const hn::RebindToSigned<DF> di;
  const VF magic = hn::Set(d, 12583039.0f);
  VF f[n], p[n];
#pragma GCC unroll 4
  for (int i = 0; i < n; ++i) {
    const VF clamped = AtMost(d, 127.0f, AtLeast(d, -127.0f, x[i]));
    x[i] = hn::Add(clamped, magic);
    f[i] = hn::Sub(clamped, hn::Sub(x[i], magic));
  }
  Cubic(f, terms, p);
#pragma GCC unroll 4
  for (int i = 0; i < n; ++i)
    x[i] = hn::Mul(p[i], hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(di, x[i]))));
}

/// The same rounded to bf16.
template <int n>
HWY_INLINE void RoundedExp2Each(VF (&x)[n]) {
  const DU d;
  RoughExp2Each(x);
#pragma GCC unroll 4
  for (int i = 0; i < n; ++i) {
    const VU near = hn::Add(hn::BitCast(d, x[i]), hn::Set(d, 0x8000u));
    x[i] = hn::BitCast(DF(), hn::And(near, hn::Set(d, 0xFFFF0000u)));
  }
}
#endif

/// Sixteen rows of a tile and their results. Columns are in groups of 32, whose two halves are the
/// two numbers of sixteen words.
struct SoftmaxBlock {
  float* scores;               // [16][64]
  Bf16* probabilities;         // [16][64]
  const std::uint64_t* masks;  // [16], null: every key is visible
  float* factors;              // [16]
  float* running_max;          // [16]
  float* lane_sums;            // [16][max_lanes]
  Index first, rows;           // in the tile
  Clip clip;                   // columns, in multiples of 32
};

template <bool masked>
HWY_INLINE VF LoadScores(const SoftmaxBlock& block, Index r, Index column) {
  const DF d;
  const VF z = hn::LoadU(d, block.scores + r * tile + column);
  if constexpr (!masked) return z;
  return hn::IfThenElse(BitsToMask(block.masks[r], column), z, hn::Set(d, minus_infinity));
}

/// The lanes' largest logits of a row.
template <bool masked>
HWY_INLINE VF LargestLogits(const SoftmaxBlock& block, Index r, Clip clip) {
  VF most = LoadScores<masked>(block, r, clip.begin);
#pragma GCC unroll 4
  for (Index c = clip.begin + lane_count; c < clip.end; c += lane_count)
    most = hn::Max(most, LoadScores<masked>(block, r, c));
  return hn::Mul(most, hn::Set(DF(), block.factors[r]));
}

/// exp2 of 32 columns, rounded, and their sum.
template <bool masked>
HWY_INLINE VF RoundedGroup(const SoftmaxBlock& block, Index r, Index column, VF factor, VF base) {
  constexpr int vectors = lane_count == 16 ? 1 : 2;  // of each half, computed together
  const DU d;
  Bf16* to = block.probabilities + r * tile + column;
  VF sum = hn::Zero(DF());
#pragma GCC unroll 4
  for (Index i = 0; i < 16; i += vectors * lane_count) {
    VF p[2 * vectors];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      const Index c = column + i + v * lane_count;
      p[2 * v] = hn::MulSub(LoadScores<masked>(block, r, c), factor, base);
      p[2 * v + 1] = hn::MulSub(LoadScores<masked>(block, r, c + 16), factor, base);
    }
    RoundedExp2Each(p);
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      const VU words = JoinedHalves(hn::BitCast(d, p[2 * v]), hn::BitCast(d, p[2 * v + 1]));
      StoreWords(words, d, to + 2 * (i + v * lane_count));
    }
    const VF both = TreeSum(p);
    sum = i == 0 ? both : hn::Add(sum, both);
  }
  return sum;
}

/// The probabilities of a row, and the lanes' sums of them.
template <bool masked>
HWY_INLINE VF RoundedRow(const SoftmaxBlock& block, Index r, Clip clip) {
  const DF d;
  const VF factor = hn::Set(d, block.factors[r]);
  const VF base =
      hn::Max(hn::Set(d, block.running_max[r]), hn::Set(d, -std::numeric_limits<float>::max()));
  VF sum = RoundedGroup<masked>(block, r, clip.begin, factor, base);
  if (clip.end - clip.begin > 32)
    sum = hn::Add(sum, RoundedGroup<masked>(block, r, clip.begin + 32, factor, base));
  return sum;
}

/// A fused multiply-add gives the largest logit's distance from the running max, which is that
/// logit rounded, as what was rounded off: next to nothing for small logits, but without limit for
/// large ones. Rows of a large running max are multiplied first.
inline constexpr float large_max = 1024;

HWY_INLINE void ScaleIfLarge(const SoftmaxBlock& block, Index r, Clip clip) {
  const DF d;
  if (!(std::fabs(block.running_max[r]) >= large_max) || block.factors[r] == 1) return;
  const VF factor = hn::Set(d, block.factors[r]);
  for (Index c = clip.begin; c < clip.end; c += lane_count) {
    float* z = block.scores + r * tile + c;
    hn::StoreU(hn::Mul(hn::LoadU(d, z), factor), d, z);
  }
  block.factors[r] = 1;
}

HWY_INLINE void ScaleLargeRows(const SoftmaxBlock& block, Clip clip) {
  const DF d;
  Mask large = hn::Gt(hn::Zero(d), hn::Zero(d));
  for (Index r = 0; r < block_rows; r += lane_count)
    large =
        hn::Or(large, hn::Ge(hn::Abs(hn::LoadU(d, block.running_max + r)), hn::Set(d, large_max)));
  if (HWY_LIKELY(hn::AllFalse(d, large))) return;
  for (Index r = 0; r < block.rows; ++r) ScaleIfLarge(block, r, clip);
}

template <bool masked>
HWY_NOINLINE void UpdateRowMax(const SoftmaxBlock& block, Index r, Clip clip, SoftmaxTile& state) {
  const float most = hn::GetLane(hn::MaxOfLanes(DF(), LargestLogits<masked>(block, r, clip)));
  if (most > block.running_max[r]) Rescale(state, block.first + r, most);
  ScaleIfLarge(block, r, clip);
}

/// The first running max of rows that have none: nothing was measured from it, so nothing is
/// rescaled.
template <bool masked>
HWY_INLINE void SetFirstMax(const SoftmaxBlock& block, Clip clip) {
  const DF d;
  Mask none = hn::Gt(hn::Zero(d), hn::Zero(d));
  for (Index r = 0; r < block_rows; r += lane_count)
    none = hn::Or(none, hn::Eq(hn::LoadU(d, block.running_max + r), hn::Set(d, minus_infinity)));
  if (HWY_LIKELY(hn::AllFalse(d, none))) return;
  for (Index r = 0; r < block.rows; ++r) {
    if (block.running_max[r] != minus_infinity) continue;
    const float most = hn::GetLane(hn::MaxOfLanes(d, LargestLogits<masked>(block, r, clip)));
    if (most > minus_infinity) block.running_max[r] = most;
  }
}

/// One sweep: a maximum that outgrew the running max shows in the sum, and only then a row is read
/// again. `clip` is the block's, as a constant where it is one.
template <bool masked>
HWY_INLINE void SoftmaxRows(const SoftmaxBlock& block, Clip clip, SoftmaxTile& state) {
  const DF d;
  const VF limit = hn::Set(d, 256.0f);
  static_assert(slack == 8);
  SetFirstMax<masked>(block, clip);
  ScaleLargeRows(block, clip);
  for (Index r = 0; r < block.rows; ++r) {
    float* lane_sums = block.lane_sums + r * max_lanes;
    VF sum = RoundedRow<masked>(block, r, clip);
    if (HWY_UNLIKELY(!hn::AllTrue(d, hn::Le(sum, limit)))) {  // NaN, too
      UpdateRowMax<masked>(block, r, clip, state);
      sum = RoundedRow<masked>(block, r, clip);
    }
    hn::StoreU(hn::Add(hn::LoadU(d, lane_sums), sum), d, lane_sums);
  }
}

HWY_INLINE void SoftmaxBf16Block(const SoftmaxBlock& block, SoftmaxTile& state) {
  if (block.masks == nullptr) {
    SoftmaxRows<false>(block, whole_row, state);
  } else {
    SoftmaxRows<true>(block, block.clip, state);
  }
}

/// Rows of a tile from `first` on.
struct RowsOfTile {
  Index first, rows;           // rows of the tile in all
  const std::uint64_t* masks;  // [64], null: every key is visible
  const float* factors;        // [64], null: 1
  Clip clip;
};

HWY_INLINE void SoftmaxBf16Rows(const RowsOfTile& rows, float* scores, SoftmaxTile& state,
                                Bf16* probabilities) {
  const DF d;
  alignas(64) float factors[block_rows];
  for (Index r = 0; r < block_rows; r += lane_count)
    hn::Store(
        rows.factors == nullptr ? hn::Set(d, 1.0f) : hn::LoadU(d, rows.factors + rows.first + r), d,
        factors + r);
  SoftmaxBf16Block({.scores = scores,
                    .probabilities = probabilities,
                    .masks = rows.masks == nullptr ? nullptr : rows.masks + rows.first,
                    .factors = factors,
                    .running_max = state.running_max + rows.first,
                    .lane_sums = state.lane_sums + rows.first * max_lanes,
                    .first = rows.first,
                    .rows = std::min(rows.rows - rows.first, block_rows),
                    .clip = rows.clip},
                   state);
}

inline void Bf16OnlineSoftmax(float* scores, Index rows, const Clip* clips,
                              const std::uint64_t* masks, const float* factors, SoftmaxTile& state,
                              Bf16* probabilities) noexcept {
  for (Index r = 0; r < rows; r += block_rows) {
    const Clip clip = BlockClip(clips, r);
    if (clip.end > 0)
      SoftmaxBf16Rows({r, rows, masks, factors, clip}, scores + r * tile, state,
                      probabilities + r * tile);
  }
}

/// Columns that any of 16 rows sees, in multiples of 32.
HWY_INLINE Clip VisibleColumns(const std::uint64_t* masks, Index row) {
  if (masks == nullptr) return whole_row;
  std::uint64_t any = 0;
  for (Index r = row; r < row + block_rows; ++r) any |= masks[r];
  if (any == 0) return {};
  return {(any & 0xFFFFFFFFu) != 0 ? 0 : tile / 2, any >> 32 != 0 ? tile : tile / 2};
}

/// Sixteen rows at a time: AMX powers down when the softmax of more rows comes between two
/// products, and takes as long as such a softmax to wake up. The scores of the next rows are
/// multiplied before the softmax of these, which then need not wait for the products.
template <class Engine>
inline void Bf16Forward(const Bf16ForwardTile& visit, SoftmaxTile& state) noexcept {
  constexpr Index block_scores = block_rows * tile;
  Index waiting = -1;  // rows whose scores are computed
  Clip waiting_clip{};
  float* scores = visit.scores;  // two blocks alternate
  float* other_scores = visit.scores + block_scores;
  const auto absorb = [&] {
    SoftmaxBf16Rows({waiting, visit.rows, visit.masks, visit.factors, waiting_clip}, other_scores,
                    state, visit.probabilities);
    AccumulateBlock<Engine>(visit.probabilities, visit.values, state.width, waiting_clip,
                            state.out + waiting * state.width);
  };
  for (Index r = 0; r < visit.rows; r += block_rows) {
    const Clip clip = VisibleColumns(visit.masks, r);
    if (clip.end == 0) continue;
    ScoreBlock<Engine>(visit.queries + r * visit.depth, visit.depth, visit.keys, clip, scores);
    if (waiting >= 0) absorb();
    waiting = r;
    waiting_clip = clip;
    std::swap(scores, other_scores);
  }
  if (waiting >= 0) absorb();
}

inline void ScaleRows(float* scores, Index rows, const Clip* clips, const float* factors) noexcept {
  const DF d;
  for (Index r = 0; r < rows; ++r) {
    const Clip clip = ClipOf(clips, r);
    const VF factor = hn::Set(d, factors[r]);
    for (Index c = clip.begin; c < clip.end; c += lane_count) {
      float* at = scores + r * tile + c;
      hn::StoreU(hn::Mul(hn::LoadU(d, at), factor), d, at);
    }
  }
}

inline void ZeroDropped(const float* kept, Index rows, Bf16* probabilities) noexcept {
  const DF d;
  for (Index r = 0; r < rows; ++r) {
    for (Index first = 0; first < tile; first += 32) {
      for (Index i = 0; i < 16; i += lane_count) {
        const float* from = kept + r * tile + first + i;
        const auto dropped = [&](Index at) {
          return hn::RebindMask(DU(), hn::Eq(hn::LoadU(d, from + at), hn::Zero(d)));
        };
        const VU low = hn::IfThenZeroElse(dropped(0), hn::Set(DU(), 0x0000FFFFu));
        const VU high = hn::IfThenZeroElse(dropped(16), hn::Set(DU(), 0xFFFF0000u));
        Bf16* at = probabilities + r * tile + first + 2 * i;
        StoreWords(hn::And(LoadWords(DU(), at), hn::Or(low, high)), DU(), at);
      }
    }
  }
}

inline void PackBf16Scores(const float* numbers, Index rows, Bf16* left) noexcept {
  const DF d;
  for (Index r = 0; r < rows; ++r) {
    for (Index first = 0; first < tile; first += 32) {
      for (Index i = 0; i < 16; i += lane_count) {
        const float* from = numbers + r * tile + first + i;
        StoreWords(RoundedBf16(hn::LoadU(d, from), hn::LoadU(d, from + 16)), DU(),
                   left + r * tile + first + 2 * i);
      }
    }
  }
  std::fill(left + rows * tile, left + tile * tile, Bf16());
}

inline void PackBf16Interleaved(const float* numbers, Index rows, const float* factors,
                                Bf16* words) noexcept {
  const DF d;
  for (Index r = 0; r < tile; r += 2) {
    for (Index c = 0; c < tile; c += lane_count) {
      VF x[2];
      for (Index i = 0; i < 2; ++i) {
        x[i] = r + i < rows ? hn::LoadU(d, numbers + (r + i) * tile + c) : hn::Zero(d);
        if (factors != nullptr && r + i < rows) x[i] = hn::Mul(x[i], hn::Set(d, factors[r + i]));
      }
      StoreWords(RoundedBf16(x[0], x[1]), DU(), words + r * tile + 2 * c);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace rapt::detail
HWY_AFTER_NAMESPACE();
#endif
