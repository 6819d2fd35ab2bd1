// A whole tile of a cache past a few query rows of each head in one go: scores, softmax and sum
// with nothing between them. A tile of bf16 is read in a fifth of a microsecond, and calls from one
// step to the next took a third of that.
#if defined(RAPT_THIN_PASS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RAPT_THIN_PASS_INL_H
#undef RAPT_THIN_PASS_INL_H
#else
#define RAPT_THIN_PASS_INL_H
#endif

#include "kernels/decode/pages-inl.h"
#include "kernels/tiles/softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rapt {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Absorb of whole rows, four vectors in lockstep: with one row there is nothing else to do while
/// one waits for its exp2.
HWY_INLINE void AbsorbWhole(float* scores, Index rows, SoftmaxTile& state) {
  constexpr int vectors = static_cast<int>(std::min<Index>(4, tile / lane_count));
  const DF d;
  TakeMaxima<false>(scores, rows, nullptr, nullptr, state);
  for (Index r = 0; r < rows; ++r) {
    float* row = scores + r * tile;
    float* lane_sums = state.lane_sums + r * max_lanes;
    const VF base = hn::Set(d, std::max(state.reference[r], -std::numeric_limits<float>::max()));
    VF sum = hn::Zero(d);
    for (Index c = 0; c < tile; c += vectors * lane_count) {
      VF p[vectors];
#pragma GCC unroll 4
      for (int i = 0; i < vectors; ++i) p[i] = hn::Sub(hn::Load(d, row + c + i * lane_count), base);
      Exp2Each(d, p);
#pragma GCC unroll 4
      for (int i = 0; i < vectors; ++i) hn::Store(p[i], d, row + c + i * lane_count);
      sum = hn::Add(sum, TreeSum(p));
    }
    hn::Store(hn::Add(hn::Load(d, lane_sums), sum), d, lane_sums);
  }
}

template <class Stored>
inline void PassTile(const ThinPass& pass) noexcept {
  alignas(64) float scores[ThinPass::most_rows * tile];
  const Index numbers =
      pass.rows * ((pass.dim + Kernels::thin_step - 1) / Kernels::thin_step * Kernels::thin_step);
  for (Index h = 0; h < pass.heads; ++h) {
    const std::byte* head = pass.head + h * pass.head_bytes;
    const std::byte* values = head + pass.value_offset;
    const std::byte* next = h + 1 < pass.heads ? head + pass.head_bytes : pass.next;
    const float* scales =
        pass.scale_offset == 0 ? nullptr : reinterpret_cast<const float*>(head + pass.scale_offset);
    SoftmaxTile& state = pass.states[h];
    ThinScores<Stored>(pass.queries + h * numbers, pass.rows, {head, scales, tile, tile, values},
                       pass.dim, scores);
    AbsorbWhole(scores, pass.rows, state);
    ThinGather<Stored>(
        scores, pass.rows,
        {values, scales == nullptr ? nullptr : scales + tile, pass.value_width, tile, next},
        state.width, state.out);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace rapt
HWY_AFTER_NAMESPACE();
#endif
