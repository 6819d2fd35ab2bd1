// The running softmax over bf16 probabilities. Rounding them costs up to 2^-8, so exp2 need not be
// better than 7.5e-5: half the polynomial, and just what the bound u16 (1 + 2^-6) leaves room for.
// The sums are those of the rounded numbers, so that rounding up or down cancels between numerator
// and denominator.
#if defined(RAPT_PAIR_SOFTMAX_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RAPT_PAIR_SOFTMAX_INL_H
#undef RAPT_PAIR_SOFTMAX_INL_H
#else
#define RAPT_PAIR_SOFTMAX_INL_H
#endif

#include "kernels/pair_pack-inl.h"
#include "kernels/pair_product-inl.h"
#include "kernels/softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rapt {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

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

/// x[i] = 2^x[i] within 7.5e-5 of itself for x <= 127; 0 at -inf, NaN for NaN.
template <int n>
HWY_INLINE void RoughExp2Each(VF (&x)[n]) {
  const DF d;
  VF f[n], p[n];
#if HWY_TARGET == HWY_AVX3
  // vscalef takes the floor of its exponent by itself, so the polynomial covers [0, 1). The
  // fraction of -inf is 0, and 1 scaled by -inf is 0.
  constexpr float terms[] = {0x1.3f96a4p-4f, 0x1.cefc4cp-3f, 0x1.64444cp-1f, 0x1.fff632p-1f};
#pragma GCC unroll 4
  for (int i = 0; i < n; ++i) f[i] = VF{_mm512_reduce_ps(x[i].raw, 0x09)};
  Cubic(f, terms, p);
#pragma GCC unroll 4
  for (int i = 0; i < n; ++i) x[i] = VF{_mm512_scalef_ps(p[i].raw, x[i].raw)};
#else
  // As Exp2Each does it, over [-1/2, 1/2].
  constexpr float terms[] = {0x1.c3f760p-5f, 0x1.f0de1ap-3f, 0x1.62f31ap-1f, 0x1.fff692p-1f};
  const hn::RebindToSigned<DF> di;
  const VF magic = hn::Set(d, 12583039.0f);
#pragma GCC unroll 4
  for (int i = 0; i < n; ++i) {
    const VF clamped = AtLeast(d, -127.0f, x[i]);
    x[i] = hn::Add(clamped, magic);
    f[i] = hn::Sub(clamped, hn::Sub(x[i], magic));
  }
  Cubic(f, terms, p);
#pragma GCC unroll 4
  for (int i = 0; i < n; ++i)
    x[i] = hn::Mul(p[i], hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(di, x[i]))));
#endif
}

/// Sixteen rows of a tile and what becomes of them. Columns count in groups of 32, whose two halves
/// are the two numbers of sixteen pairs.
struct SoftmaxBlock {
  const float* scores;         // [64][64]
  Bf16* probabilities;         // [64][64]
  const std::uint64_t* masks;  // null: all pairs are visible
  const float* factors;        // null: 1
  Index first, end;            // rows
  Clip clip;                   // columns, in multiples of 32

  HWY_INLINE VF Factor(Index r) const {
    return hn::Set(DF(), factors == nullptr ? 1.0f : factors[r]);
  }
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
  return hn::Mul(most, block.Factor(r));
}

/// New references where a maximum outgrew the old one. The sweep that finds out does not branch: it
/// hardly ever finds one.
template <bool masked>
HWY_INLINE void TakePairMaxima(const SoftmaxBlock& block, Clip clip, SoftmaxTile& state) {
  const DF d;
  const VF limit = hn::Set(d, slack);
  Mask outgrown = hn::Gt(limit, limit);
  for (Index r = block.first; r < block.end; ++r) {
    const VF most = LargestLogits<masked>(block, r, clip);
    outgrown = hn::Or(outgrown, hn::Gt(hn::Sub(most, hn::Set(d, state.reference[r])), limit));
  }
  if (HWY_LIKELY(hn::AllFalse(d, outgrown))) return;
  for (Index r = block.first; r < block.end; ++r) {
    const float most = hn::GetLane(hn::MaxOfLanes(d, LargestLogits<masked>(block, r, clip)));
    if (most - state.reference[r] > slack) Rescale(state, r, most);
  }
}

/// exp2 of 32 columns, rounded; the sum grows by them. Logits are rounded as the maximum was: with
/// a fused multiply-add the largest of several millions would not be 0 below itself.
template <class Engine, bool masked>
HWY_INLINE VF RoundedGroup(const SoftmaxBlock& block, Index r, Index column, VF factor, VF base,
                           VF sum) {
  constexpr int vectors = lane_count == 16 ? 1 : 2;  // pairs of vectors that go together
  Bf16* to = block.probabilities + r * tile + column;
#pragma GCC unroll 4
  for (Index i = 0; i < 16; i += vectors * lane_count) {
    VF p[2 * vectors];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      const Index c = column + i + v * lane_count;
      p[2 * v] = hn::Sub(hn::Mul(LoadScores<masked>(block, r, c), factor), base);
      p[2 * v + 1] = hn::Sub(hn::Mul(LoadScores<masked>(block, r, c + 16), factor), base);
    }
    RoughExp2Each(p);
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      const VU pairs = RoundedPairs(p[2 * v], p[2 * v + 1]);
      StoreWords(pairs, DU(), to + 2 * (i + v * lane_count));
      sum = Engine::AddPairs(sum, pairs);
    }
  }
  return sum;
}

/// `clip` is the block's, as a constant where it is one.
template <class Engine, bool masked>
HWY_INLINE void SoftmaxRows(const SoftmaxBlock& block, Clip clip, SoftmaxTile& state) {
  const DF d;
  TakePairMaxima<masked>(block, clip, state);
  for (Index r = block.first; r < block.end; ++r) {
    const VF base = hn::Set(d, std::max(state.reference[r], -std::numeric_limits<float>::max()));
    const VF factor = block.Factor(r);
    float* lane_sums = state.lane_sums + r * max_lanes;
    VF sum = hn::LoadU(d, lane_sums);
#pragma GCC unroll 2
    for (Index column = clip.begin; column < clip.end; column += 32)
      sum = RoundedGroup<Engine, masked>(block, r, column, factor, base, sum);
    hn::StoreU(sum, d, lane_sums);
  }
}

template <class Engine>
HWY_INLINE void AbsorbPairBlock(const SoftmaxBlock& block, SoftmaxTile& state) {
  if (block.masks == nullptr) {
    SoftmaxRows<Engine, false>(block, whole_row, state);
  } else {
    SoftmaxRows<Engine, true>(block, block.clip, state);
  }
}

template <class Engine>
inline void AbsorbPairs(const float* scores, Index rows, const Clip* clips,
                        const std::uint64_t* masks, const float* factors, SoftmaxTile& state,
                        Bf16* probabilities) noexcept {
  for (Index r = 0; r < rows; r += block_rows) {
    const Clip clip = BlockClip(clips, r);
    if (clip.end > 0)
      AbsorbPairBlock<Engine>(
          {scores, probabilities, masks, factors, r, std::min(rows, r + block_rows), clip}, state);
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

/// Sixteen rows at a time: the tile unit falls asleep when the softmax of more rows comes between
/// two products, and takes as long as such a softmax to wake up.
template <class Engine>
inline void VisitPairs(const PairVisit& visit, SoftmaxTile& state) noexcept {
  for (Index r = 0; r < visit.rows; r += block_rows) {
    const Clip clip = VisibleColumns(visit.masks, r);
    if (clip.end == 0) continue;
    ScoreBlock<Engine>(visit.queries + r * visit.depth, visit.depth, visit.keys, clip,
                       visit.scores + r * tile);
    AbsorbPairBlock<Engine>({visit.scores, visit.probabilities, visit.masks, visit.factors, r,
                             std::min(visit.rows, r + block_rows), clip},
                            state);
    GatherBlock<Engine>(visit.probabilities + r * tile, visit.values, state.width, clip,
                        state.out + r * state.width);
  }
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

inline void ErasePairs(const float* kept, Index rows, Bf16* probabilities) noexcept {
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

inline void PackNumbers(const float* numbers, Index rows, Bf16* left) noexcept {
  const DF d;
  for (Index r = 0; r < rows; ++r) {
    for (Index first = 0; first < tile; first += 32) {
      for (Index i = 0; i < 16; i += lane_count) {
        const float* from = numbers + r * tile + first + i;
        StoreWords(RoundedPairs(hn::LoadU(d, from), hn::LoadU(d, from + 16)), DU(),
                   left + r * tile + first + 2 * i);
      }
    }
  }
  std::fill(left + rows * tile, left + tile * tile, Bf16());
}

inline void PackNatural(const float* numbers, Index rows, const float* factors,
                        Bf16* pairs) noexcept {
  const DF d;
  for (Index r = 0; r < tile; r += 2) {
    for (Index c = 0; c < tile; c += lane_count) {
      VF x[2];
      for (Index i = 0; i < 2; ++i) {
        x[i] = r + i < rows ? hn::LoadU(d, numbers + (r + i) * tile + c) : hn::Zero(d);
        if (factors != nullptr && r + i < rows) x[i] = hn::Mul(x[i], hn::Set(d, factors[r + i]));
      }
      StoreWords(RoundedPairs(x[0], x[1]), DU(), pairs + r * tile + 2 * c);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace rapt
HWY_AFTER_NAMESPACE();
#endif
