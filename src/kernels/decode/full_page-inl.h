// Attention of a few query rows of each head over a full page of a cache in one call: scores,
// softmax and weighted sum. A page of bf16 is read in a fifth of a microsecond, and separate calls
// for each step took a third of that.
#if defined(RAPT_FULL_PAGE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RAPT_FULL_PAGE_INL_H
#undef RAPT_FULL_PAGE_INL_H
#else
#define RAPT_FULL_PAGE_INL_H
#endif

#include "kernels/decode/pages-inl.h"
#include "kernels/tiles/softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rapt::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// OnlineSoftmax of whole rows, four vectors in lockstep: one row alone would wait for the latency
/// of exp2.
HWY_INLINE void SoftmaxWholeRows(float* scores, Index rows, SoftmaxTile& state) {
  constexpr int vectors = static_cast<int>(std::min<Index>(4, tile / lane_count));
  const DF d;
  UpdateRunningMax<false>(scores, rows, nullptr, nullptr, state);
  for (Index r = 0; r < rows; ++r) {
    float* row = scores + r * tile;
    float* lane_sums = state.lane_sums + r * max_lanes;
    const VF base = hn::Set(d, std::max(state.running_max[r], -std::numeric_limits<float>::max()));
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
inline void AttendPage(const FullPage& page) noexcept {
  alignas(64) float scores[FullPage::max_rows * tile];
  const Index numbers = page.rows * DecodeKernels::query_stride(page.dim);
  for (Index h = 0; h < page.heads; ++h) {
    const std::byte* head = page.head + h * page.head_bytes;
    const std::byte* values = head + page.value_offset;
    const std::byte* next = h + 1 < page.heads ? head + page.head_bytes : page.next;
    const float* scales =
        page.scale_offset == 0 ? nullptr : reinterpret_cast<const float*>(head + page.scale_offset);
    SoftmaxTile& state = page.states[h];
    PageScores<Stored>(page.queries + h * numbers, page.rows, {head, scales, tile, tile, values},
                       page.dim, scores);
    SoftmaxWholeRows(scores, page.rows, state);
    PageAccumulateValues<Stored>(
        scores, page.rows,
        {values, scales == nullptr ? nullptr : scales + tile, page.value_width, tile, next},
        state.width, state.out);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace rapt::detail
HWY_AFTER_NAMESPACE();
#endif
