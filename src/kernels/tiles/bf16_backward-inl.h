// Backward of 64 queries against 64 keys whose logits are scaled products: probabilities and their
// gradients go from the products of sixteen rows to the operands of the next products without being
// written as f32. Per (query, key) 8 bytes read and 6 written.
#if defined(RAPT_BF16_BACKWARD_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RAPT_BF16_BACKWARD_INL_H
#undef RAPT_BF16_BACKWARD_INL_H
#else
#define RAPT_BF16_BACKWARD_INL_H
#endif

#include "kernels/tiles/bf16_softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rapt::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// A vector of probabilities and of gradients of their logits.
struct Slope {
  VF p, dlogit;
};

/// Row r of a block, the columns from c on. Hidden keys give zeros, whatever the scores are.
template <bool masked>
HWY_INLINE void SlopesOfRow(const Bf16BackwardTile& visit, Index r, const float* scores,
                            const float* dprobs, Index c, Slope (&slopes)[2]) {
  const DF d;
  const VF factor = hn::Set(d, visit.factors[r]);
  const VF base = hn::Set(d, visit.state.running_max[r]);
  const VF mean = hn::Set(d, visit.state.delta[r]);
  VF p[2];
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i)
    p[i] = hn::Sub(hn::Mul(hn::LoadU(d, scores + c + 16 * i), factor), base);
  RoughExp2Each(p);
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    slopes[i] = {p[i], hn::Mul(p[i], hn::Sub(hn::LoadU(d, dprobs + c + 16 * i), mean))};
    if constexpr (!masked) continue;
    const Mask seen = BitsToMask(visit.masks[r], c + 16 * i);
    slopes[i] = {hn::IfThenElseZero(seen, slopes[i].p), hn::IfThenElseZero(seen, slopes[i].dlogit)};
  }
}

/// Rows r and r + 1 of the tile, rows i and i + 1 of the block: 32 columns at a time.
template <bool masked>
HWY_INLINE void SlopesOfTwoRows(const Bf16BackwardTile& visit, Index r, Index i) {
  const DF d;
  const DU du;
  for (Index first = 0; first < tile; first += 32) {
    for (Index c = first; c < first + 16; c += lane_count) {
      Slope slopes[2][2];
#pragma GCC unroll 2
      for (Index row = 0; row < 2; ++row) {
        const Index at = (i + row) * tile;
        const Index query = std::min(r + row, visit.rows - 1);  // others have no statistics
        SlopesOfRow<masked>(visit, query, visit.scores + at, visit.dprobs + at, c, slopes[row]);
        StoreWords(RoundedBf16(slopes[row][0].dlogit, slopes[row][1].dlogit), du,
                   visit.dlogit_strips + at + first + 2 * (c - first));
        if (visit.query_scales == nullptr) continue;
        const VF scale = hn::Set(d, visit.query_scales[query]);
        for (Slope& slope : slopes[row]) slope.dlogit = hn::Mul(slope.dlogit, scale);
      }
#pragma GCC unroll 2
      for (Index half = 0; half < 2; ++half) {
        const Index at = r * tile + 2 * (c + 16 * half);
        const Slope &a = slopes[0][half], &b = slopes[1][half];
        StoreWords(RoundedBf16(a.p, b.p), du, visit.probabilities + at);
        StoreWords(RoundedBf16(a.dlogit, b.dlogit), du, visit.dlogits + at);
      }
    }
  }
}

/// Zeros in rows from r on, up to the block's end.
HWY_INLINE void ClearSlopes(const Bf16BackwardTile& visit, Index r, Index end) {
  std::fill(visit.probabilities + r * tile, visit.probabilities + end * tile, Bf16());
  std::fill(visit.dlogits + r * tile, visit.dlogits + end * tile, Bf16());
}

/// The last query of an odd number of them shares its words with a row of zeros.
HWY_INLINE void HideRow(const Bf16BackwardTile& visit, Index r) {
  for (Bf16* numbers : {visit.probabilities, visit.dlogits})
    for (Index c = 0; c < tile; ++c) numbers[(r - 1) * tile + 2 * c + 1] = Bf16();
}

template <bool masked>
HWY_INLINE void SlopesOfBlock(const Bf16BackwardTile& visit, Index first) {
  const Index end = std::min(visit.rows, first + block_rows);
  for (Index r = first; r < end; r += 2) SlopesOfTwoRows<masked>(visit, r, r - first);
  if (end % 2 != 0) HideRow(visit, end);
  ClearSlopes(visit, (end + 1) / 2 * 2, first + block_rows);
}

/// Sixteen rows at a time, with their dQ, so that AMX stays awake. The caller multiplies dV and dK:
/// their products sum over all 64 queries.
template <class Engine>
inline void Bf16Backward(const Bf16BackwardTile& visit) noexcept {
  for (Index r = 0; r < tile; r += block_rows) {
    const Clip clip = r < visit.rows ? VisibleColumns(visit.masks, r) : Clip{};
    if (clip.end == 0) {
      ClearSlopes(visit, r, r + block_rows);
      continue;
    }
    ScoreBlock<Engine>(visit.queries + r * visit.depth, visit.depth, visit.keys, clip,
                       visit.scores);
    ScoreBlock<Engine>(visit.douts + r * visit.value_depth, visit.value_depth, visit.values, clip,
                       visit.dprobs);
    if (visit.masks == nullptr) {
      SlopesOfBlock<false>(visit, r);
    } else {
      SlopesOfBlock<true>(visit, r);
    }
    AccumulateBlock<Engine>(visit.dlogit_strips, visit.key_rows, visit.width, clip,
                            visit.dqueries + r * visit.width);
  }
}

/// The same for logits that are complete, as f32 in place: the bits of Bf16Backward.
inline void Bf16SoftmaxBackward(float* logits, float* dprobs, Index rows,
                                const std::uint64_t* masks, const SoftmaxGradient& state) noexcept {
  const DF d;
  for (Index r = 0; r < rows; ++r) {
    const VF base = hn::Set(d, state.running_max[r]);
    const VF mean = hn::Set(d, state.delta[r]);
    const std::uint64_t word = masks == nullptr ? ~std::uint64_t{0} : masks[r];
    for (Index c = 0; c < tile; c += lane_count) {
      float *z = logits + r * tile + c, *dp = dprobs + r * tile + c;
      VF p[1] = {hn::Sub(hn::Load(d, z), base)};
      RoughExp2Each(p);
      const Mask seen = BitsToMask(word, c);
      const VF dlogit = hn::Mul(p[0], hn::Sub(hn::Load(d, dp), mean));
      hn::Store(hn::IfThenElseZero(seen, p[0]), d, z);
      hn::Store(hn::IfThenElseZero(seen, dlogit), d, dp);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace rapt::detail
HWY_AFTER_NAMESPACE();
#endif
