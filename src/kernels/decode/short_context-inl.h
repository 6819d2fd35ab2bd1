// One query of each head over at most 64 keys in rows: two passes of softmax and nothing else.
// Heads go through each step together: one alone would wait for its own latencies.
#if defined(RAPT_SHORT_CONTEXT_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RAPT_SHORT_CONTEXT_INL_H
#undef RAPT_SHORT_CONTEXT_INL_H
#else
#define RAPT_SHORT_CONTEXT_INL_H
#endif

#include "base/sizes.h"
#include "kernels/common/vector_tail-inl.h"
#include "kernels/decode/pages-inl.h"
#include "kernels/decode/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rapt::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Query rows that go together.
inline constexpr Index short_context_rows = 16;

template <class T>
HWY_INLINE T* BytesOn(T* at, Index bytes) {
  using Byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
  return reinterpret_cast<T*>(reinterpret_cast<Byte*>(at) + bytes);
}

/// Some of the query rows.
struct QueryBlock {
  Index first, count;
};

/// Calls each(n, row, key head) for the rows of a block, n counted from its first.
template <class Each>
HWY_INLINE void ForEachRow(const ShortContextHeads& in, const QueryBlock& block, const Each& each) {
  Index head = block.first / in.group, member = block.first % in.group;
  for (Index n = 0; n < block.count; ++n) {
    each(n, block.first + n, head);
    if (++member < in.group) continue;
    member = 0;
    ++head;
  }
}

/// A factor as the sum of two floats: what it multiplies is rounded as if it were a double.
struct SplitFactor {
  VF high, low;
};

/// query[dim] = numbers times the factor.
template <class Number>
HWY_INLINE void ScaleQuery(const Number* from, Index dim, const SplitFactor& factor, float* query) {
  const DF d;
  const auto scaled = [&](VF x) { return hn::MulAdd(x, factor.high, hn::Mul(x, factor.low)); };
  Index c = 0;
  for (; c + lane_count <= dim; c += lane_count)
    hn::StoreU(scaled(LoadFloats(d, from + c)), d, query + c);
  for (; c < dim; ++c) query[c] = hn::GetLane(scaled(hn::Set(d, static_cast<float>(from[c]))));
}

/// scores[n][count] of the queries of a block.
HWY_INLINE void ShortContextScores(const ShortContextHeads& in, const QueryBlock& block,
                                   const SplitFactor& factor, float* scores) {
  Dispatch(in.q, in.q_type, [&](const auto* q) {
    DispatchRows(in.keys, [&]<class Number>(const Number* keys) {
      ForEachRow(in, block, [&](Index n, Index row, Index head) {
        float query[max_dim];
        ScaleQuery(BytesOn(q, row * in.q_step), in.dim, factor, query);
        const Number* key = BytesOn(keys, head * in.key_step);
        DotRows<1>({query, 0, scores + n * tile},
                   NumberRows<Number>{key, in.keys.stride, in.keys.count, false}, in.dim);
      });
    });
  });
}

/// The denominator of a row is sum * 2^max.
struct RowDenominator {
  float max;
  double sum;
};

/// Probabilities, times the scales of the values, in place of the scores.
HWY_INLINE RowDenominator ShortContextSoftmax(const ShortContextHeads& in, Index head,
                                              float* scores) {
  const DF d;
  const bool scaled = in.keys.scales != nullptr, scaled_values = in.values.scales != nullptr;
  const float* key_scales = scaled ? BytesOn(in.keys.scales, head * in.key_step) : nullptr;
  const float* value_scales =
      scaled_values ? BytesOn(in.values.scales, head * in.value_step) : nullptr;
  VF most = hn::Set(d, minus_infinity);
  for (Index c = 0; c < in.keys.count; c += lane_count) {
    VF z = hn::Load(d, scores + c);
    if (scaled) z = hn::Mul(z, hn::LoadU(d, key_scales + c));
    z = hn::IfThenElse(hn::FirstN(d, to_size(in.keys.count - c)), z, hn::Set(d, minus_infinity));
    hn::Store(z, d, scores + c);
    most = hn::Max(most, z);
  }
  const float top = hn::GetLane(hn::MaxOfLanes(d, most));
  const VF base = hn::Set(d, std::max(top, -std::numeric_limits<float>::max()));
  VW sum = hn::Zero(DW());
  for (Index c = 0; c < in.keys.count; c += lane_count) {
    VF p = Exp2(d, hn::Sub(hn::Load(d, scores + c), base));
    sum = hn::Add(sum, Folded(p));
    if (scaled_values) p = hn::Mul(p, hn::LoadU(d, value_scales + c));
    hn::Store(p, d, scores + c);
  }
  // Visible keys, but every logit is -inf: 0 / 0.
  return {top, top == minus_infinity ? std::numeric_limits<double>::quiet_NaN()
                                     : hn::GetLane(hn::SumOfLanes(DW(), sum))};
}

/// out[vectors] = factor times the sum of p values, all from the same column on.
template <int vectors, class Number>
HWY_INLINE void ShortContextVectors(const float* p, const NumberRows<Number>& values, Index column,
                                    VF factor, float* out) {
  const DF d;
  VF acc[vectors];
#pragma GCC unroll 8
  for (int v = 0; v < vectors; ++v) acc[v] = hn::Zero(d);
  const Number* value = values.at + column;
  for (Index j = 0; j < values.count; ++j, value += values.stride) {
    const VF left = hn::Set(d, p[j]);
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v)
      acc[v] = hn::MulAdd(left, LoadFloats(d, value + v * lane_count), acc[v]);
  }
#pragma GCC unroll 8
  for (int v = 0; v < vectors; ++v)
    hn::StoreU(hn::Mul(acc[v], factor), d, out + column + v * lane_count);
}

template <class Number>
HWY_INLINE void ShortContextValues(const float* p, const NumberRows<Number>& values, Index dim,
                                   float factor, float* out) {
  const VF all = hn::Set(DF(), factor);
  Index c = 0;
  for (; c + 4 * lane_count <= dim; c += 4 * lane_count)
    ShortContextVectors<4>(p, values, c, all, out);
  for (; c + lane_count <= dim; c += lane_count) ShortContextVectors<1>(p, values, c, all, out);
  for (; c < dim; ++c) {
    float sum = 0;
    for (Index j = 0; j < values.count; ++j)
      sum += p[j] * static_cast<float>(values.at[j * values.stride + c]);
    out[c] = sum * factor;
  }
}

/// Writes the output rows of a block.
HWY_INLINE void ShortContextResults(const ShortContextHeads& in, const QueryBlock& block,
                                    const float* p, const RowDenominator* sums) {
  DispatchRows(in.values, [&]<class Number>(const Number* values) {
    ForEachRow(in, block, [&](Index n, Index row, Index head) {
      float numbers[max_dim];
      void* to = static_cast<std::byte*>(in.out) + row * in.out_step;
      float* out = in.out_type == Type::f32 ? static_cast<float*>(to) : numbers;
      const Number* value = BytesOn(values, head * in.value_step);
      ShortContextValues(p + n * tile,
                         NumberRows<Number>{value, in.values.stride, in.values.count, false},
                         in.value_dim, static_cast<float>(1 / sums[n].sum), out);
      if (in.out_type != Type::f32) StoreNumbers(out, in.value_dim, in.out_type, to);
    });
  });
}

inline void AttendShortContext(const ShortContextHeads& in) noexcept {
  alignas(64) float scores[short_context_rows * tile];
  RowDenominator sums[short_context_rows];
  const Index rows = in.heads * in.group;
  const auto high = static_cast<float>(in.factor);
  const SplitFactor factor{
      hn::Set(DF(), high),
      hn::Set(DF(), static_cast<float>(in.factor - static_cast<double>(high)))};
  for (Index first = 0; first < rows; first += short_context_rows) {
    const QueryBlock block{first, std::min(rows - first, short_context_rows)};
    ShortContextScores(in, block, factor, scores);
    ForEachRow(in, block, [&](Index n, Index row, Index head) {
      sums[n] = ShortContextSoftmax(in, head, scores + n * tile);
      if (in.max == nullptr) return;
      in.max[row] = sums[n].max;
      in.sum[row] = sums[n].sum;
    });
    ShortContextResults(in, block, scores, sums);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace rapt::detail
HWY_AFTER_NAMESPACE();
#endif
