// One query of each head over a few keys that lie in rows: the two passes of softmax and nothing
// around them. Heads go through each step side by side: one alone would wait for its own latencies.
#if defined(RAPT_FEW_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RAPT_FEW_INL_H
#undef RAPT_FEW_INL_H
#else
#define RAPT_FEW_INL_H
#endif

#include "kernels/common/vector_tail-inl.h"
#include "kernels/decode/pages-inl.h"
#include "kernels/decode/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rapt {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Query rows that go side by side.
inline constexpr Index few_rows = 16;

/// Calls with_numbers(typed pointer to the rows of the first head).
template <class WithNumbers>
HWY_INLINE void DispatchFew(const FewRows& rows, const WithNumbers& with_numbers) {
  if (rows.scales != nullptr) return with_numbers(static_cast<const std::int8_t*>(rows.data));
  Dispatch(rows.data, rows.type, with_numbers);
}

template <class T>
HWY_INLINE T* BytesOn(T* at, Index bytes) {
  using Byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
  return reinterpret_cast<T*>(reinterpret_cast<Byte*>(at) + bytes);
}

/// Some query rows of all.
struct FewBlock {
  Index first, count;
};

/// Calls each(n, row, key head) for the rows of a block, n counted from its first.
template <class Each>
HWY_INLINE void ForEachRow(const FewKeys& few, const FewBlock& block, const Each& each) {
  Index head = block.first / few.group, member = block.first % few.group;
  for (Index n = 0; n < block.count; ++n) {
    each(n, block.first + n, head);
    if (++member < few.group) continue;
    member = 0;
    ++head;
  }
}

/// A factor as the sum of two floats: what it multiplies is rounded as if it were a double.
struct FewFactor {
  VF high, low;
};

/// query[dim] = numbers times the factor.
template <class Number>
HWY_INLINE void FewQuery(const Number* from, Index dim, const FewFactor& factor, float* query) {
  const DF d;
  const auto scaled = [&](VF x) { return hn::MulAdd(x, factor.high, hn::Mul(x, factor.low)); };
  Index c = 0;
  for (; c + lane_count <= dim; c += lane_count)
    hn::StoreU(scaled(LoadFloats(d, from + c)), d, query + c);
  for (; c < dim; ++c) query[c] = hn::GetLane(scaled(hn::Set(d, static_cast<float>(from[c]))));
}

/// scores[n][count] of the queries of a block.
HWY_INLINE void FewScores(const FewKeys& few, const FewBlock& block, const FewFactor& factor,
                          float* scores) {
  Dispatch(few.q, few.q_type, [&](const auto* q) {
    DispatchFew(few.keys, [&]<class Number>(const Number* keys) {
      ForEachRow(few, block, [&](Index n, Index row, Index head) {
        float query[max_dim];
        FewQuery(BytesOn(q, row * few.q_step), few.dim, factor, query);
        const Number* key = BytesOn(keys, head * few.key_step);
        ScoreRows<1>({query, 0, scores + n * tile},
                     NumberRows<Number>{key, few.keys.stride, few.count, false}, few.dim);
      });
    });
  });
}

/// The denominator of a row is sum * 2^max.
struct FewSum {
  float max;
  double sum;
};

/// Probabilities, times the scales of the values, in place of the scores.
HWY_INLINE FewSum FewSoftmax(const FewKeys& few, Index head, float* scores) {
  const DF d;
  const bool scaled = few.keys.scales != nullptr, scaled_values = few.values.scales != nullptr;
  const float* key_scales = scaled ? BytesOn(few.keys.scales, head * few.key_step) : nullptr;
  const float* value_scales =
      scaled_values ? BytesOn(few.values.scales, head * few.value_step) : nullptr;
  VF most = hn::Set(d, minus_infinity);
  for (Index c = 0; c < few.count; c += lane_count) {
    VF z = hn::Load(d, scores + c);
    if (scaled) z = hn::Mul(z, hn::LoadU(d, key_scales + c));
    z = hn::IfThenElse(hn::FirstN(d, static_cast<std::size_t>(few.count - c)), z,
                       hn::Set(d, minus_infinity));
    hn::Store(z, d, scores + c);
    most = hn::Max(most, z);
  }
  const float top = hn::GetLane(hn::MaxOfLanes(d, most));
  const VF base = hn::Set(d, std::max(top, -std::numeric_limits<float>::max()));
  VW sum = hn::Zero(DW());
  for (Index c = 0; c < few.count; c += lane_count) {
    VF p = Exp2(d, hn::Sub(hn::Load(d, scores + c), base));
    sum = hn::Add(sum, Folded(p));
    if (scaled_values) p = hn::Mul(p, hn::LoadU(d, value_scales + c));
    hn::Store(p, d, scores + c);
  }
  // Keys in sight, but every logit -inf: 0 / 0.
  return {top, top == minus_infinity ? std::numeric_limits<double>::quiet_NaN()
                                     : hn::GetLane(hn::SumOfLanes(DW(), sum))};
}

/// out[vectors] = factor times the sum of p values, all from the same column on.
template <int vectors, class Number>
HWY_INLINE void FewVectors(const float* p, const NumberRows<Number>& values, Index column,
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
HWY_INLINE void FewValues(const float* p, const NumberRows<Number>& values, Index dim, float factor,
                          float* out) {
  const VF all = hn::Set(DF(), factor);
  Index c = 0;
  for (; c + 4 * lane_count <= dim; c += 4 * lane_count) FewVectors<4>(p, values, c, all, out);
  for (; c + lane_count <= dim; c += lane_count) FewVectors<1>(p, values, c, all, out);
  for (; c < dim; ++c) {
    float sum = 0;
    for (Index j = 0; j < values.count; ++j)
      sum += p[j] * static_cast<float>(values.at[j * values.stride + c]);
    out[c] = sum * factor;
  }
}

/// Writes the output rows of a block.
HWY_INLINE void FewResults(const FewKeys& few, const FewBlock& block, const float* p,
                           const FewSum* sums) {
  DispatchFew(few.values, [&]<class Number>(const Number* values) {
    ForEachRow(few, block, [&](Index n, Index row, Index head) {
      float numbers[max_dim];
      void* to = static_cast<std::byte*>(few.out) + row * few.out_step;
      float* out = few.out_type == Type::f32 ? static_cast<float*>(to) : numbers;
      const Number* value = BytesOn(values, head * few.value_step);
      FewValues(p + n * tile, NumberRows<Number>{value, few.values.stride, few.count, false},
                few.value_dim, static_cast<float>(1 / sums[n].sum), out);
      if (few.out_type != Type::f32) StoreNumbers(out, few.value_dim, few.out_type, to);
    });
  });
}

inline void AttendFew(const FewKeys& few) noexcept {
  alignas(64) float scores[few_rows * tile];
  FewSum sums[few_rows];
  const Index rows = few.heads * few.group;
  const auto high = static_cast<float>(few.factor);
  const FewFactor factor{hn::Set(DF(), high),
                         hn::Set(DF(), static_cast<float>(few.factor - static_cast<double>(high)))};
  for (Index first = 0; first < rows; first += few_rows) {
    const FewBlock block{first, std::min(rows - first, few_rows)};
    FewScores(few, block, factor, scores);
    ForEachRow(few, block, [&](Index n, Index row, Index head) {
      sums[n] = FewSoftmax(few, head, scores + n * tile);
      if (few.max == nullptr) return;
      few.max[row] = sums[n].max;
      few.sum[row] = sums[n].sum;
    });
    FewResults(few, block, scores, sums);
  }
}

// A few query rows and a page of a cache whose tokens still lie in rows.

template <class Number>
inline void OpenScores(const float* queries, Index rows, const ThinTile& keys, Index dim,
                       float* scores) noexcept {
  const Index stride = (dim + Kernels::thin_step - 1) / Kernels::thin_step * Kernels::thin_step;
  const NumberRows<Number> all{static_cast<const Number*>(keys.numbers), dim, keys.slots, false};
  InRowBlocks(rows, [&](Index r, auto block) {
    ScoreRows<decltype(block)::value>({queries + r * stride, stride, scores + r * tile}, all, dim);
  });
  if (keys.scales != nullptr) MultiplyColumns(scores, rows, keys.scales);
}

template <class Number>
inline void OpenGather(float* probabilities, Index rows, const ThinTile& values, Index width,
                       float* out) noexcept {
  if (values.scales != nullptr) MultiplyColumns(probabilities, rows, values.scales);
  const NumberRows<Number> all{static_cast<const Number*>(values.numbers), values.width,
                               values.slots, false};
  InRowBlocks(rows, [&](Index r, auto block) {
    GatherRows<decltype(block)::value>(probabilities + r * tile, all, values.width, out + r * width,
                                       width);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace rapt
HWY_AFTER_NAMESPACE();
#endif
