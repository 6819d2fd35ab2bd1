// One query against rows at any addresses, such as the neighbours of a token in a hashed cache:
// each row is read once, from start to end, and memory is the limit.
#if defined(RAPT_SCATTERED_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RAPT_SCATTERED_INL_H
#undef RAPT_SCATTERED_INL_H
#else
#define RAPT_SCATTERED_INL_H
#endif

#include "kernels/common/convert-inl.h"
#include "kernels/tiles/matmul-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rapt::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// How many rows ahead to prefetch.
inline constexpr Index scattered_prefetch_rows = 8;

template <class Number>
HWY_INLINE void PrefetchScattered(const void* const* rows, Index i, Index count, Index numbers) {
  if (i + scattered_prefetch_rows >= count) return;
  const auto* row = static_cast<const char*>(rows[i + scattered_prefetch_rows]);
  for (Index byte = 0; byte < numbers * static_cast<Index>(sizeof(Number)); byte += 64)
    __builtin_prefetch(row + byte);
}

/// scores[i] = query · rows[i]
template <class Number>
void ScatteredScores(const float* query, const void* const* rows, Index count, Index dim,
                     float* scores) noexcept {
  const DF d;
  for (Index i = 0; i < count; ++i) {
    PrefetchScattered<Number>(rows, i, count, dim);
    const auto* row = static_cast<const Number*>(rows[i]);
    VF even = hn::Zero(d), odd = even;  // two independent sums
    Index c = 0;
    for (; c + 2 * lane_count <= dim; c += 2 * lane_count) {
      even = hn::MulAdd(hn::LoadU(d, query + c), LoadFloats(d, row + c), even);
      odd = hn::MulAdd(hn::LoadU(d, query + c + lane_count), LoadFloats(d, row + c + lane_count),
                       odd);
    }
    for (; c + lane_count <= dim; c += lane_count)
      even = hn::MulAdd(hn::LoadU(d, query + c), LoadFloats(d, row + c), even);
    float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(even, odd)));
    for (; c < dim; ++c) sum += query[c] * static_cast<float>(row[c]);
    scores[i] = sum;
  }
}

/// out[dim] += sum of weights[i] * rows[i]
template <class Number>
void ScatteredAccumulateValues(const float* weights, const void* const* rows, Index count,
                               Index dim, float* out) noexcept {
  const DF d;
  for (Index i = 0; i < count; ++i) {
    PrefetchScattered<Number>(rows, i, count, dim);
    const auto* row = static_cast<const Number*>(rows[i]);
    const VF weight = hn::Set(d, weights[i]);
    Index c = 0;
    for (; c + lane_count <= dim; c += lane_count)
      hn::StoreU(hn::MulAdd(weight, LoadFloats(d, row + c), hn::LoadU(d, out + c)), d, out + c);
    for (; c < dim; ++c) out[c] += weights[i] * static_cast<float>(row[c]);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace rapt::detail
HWY_AFTER_NAMESPACE();
#endif
