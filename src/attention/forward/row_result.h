#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/forward/forward.h"
#include "base/numerics.h"

namespace rapt::detail {

struct RowPlace {
  Index item, head, query;
};

/// What a row's softmax has summed: sum * 2^max over its keys.
struct RowSum {
  double max, sum;
  bool saw_key;
};

/// Of 1, 4, 8 or 16 lanes. Four sums side by side: one alone would wait for itself.
inline double sum_of_lanes(const float* lanes, Index count) {
  if (count == 1) return static_cast<double>(lanes[0]);
  double a = 0, b = 0, c = 0, d = 0;
  for (Index lane = 0; lane < count; lane += 4) {
    a += static_cast<double>(lanes[lane]);
    b += static_cast<double>(lanes[lane + 1]);
    c += static_cast<double>(lanes[lane + 2]);
    d += static_cast<double>(lanes[lane + 3]);
  }
  return (a + b) + (c + d);
}

/// The softmax denominator of a row as sum * 2^max, sink included.
struct Denominator {
  double max, sum;
};

inline Denominator denominator(const Call& call, Index head, const RowSum& row) {
  if (!call.score_rule.has_sinks() || !row.saw_key) {
    // Visible keys, but every logit is -inf: 0 / 0, unlike a row that sees nothing.
    const bool undefined = row.saw_key && row.max == minus_infinity;
    return {row.max, undefined ? std::numeric_limits<double>::quiet_NaN() : row.sum};
  }
  // The new maximum is rounded to the f32 that rows keep; the sink's own term makes up for the
  // rounding.
  const double sink = call.score_rule.sink_log2(head);
  const double most = sink > row.max ? static_cast<double>(static_cast<float>(sink)) : row.max;
  return {most, row.sum * std::exp2(row.max - most) + std::exp2(sink - most)};
}

/// Writes output, lse and row statistics of one row. scaled(factor, out) gives the sums of p v
/// times the factor.
template <class Scaled>
Denominator write_row_result(const Call& call, const RowPlace& place, const RowSum& row,
                             const ForwardOutput& output, const Scaled& scaled) {
  const Denominator all = denominator(call, place.head, row);
  const double shrunk = row.max == all.max ? 1 : std::exp2(row.max - all.max);
  const double factor = row.saw_key ? shrunk / all.sum : 0;
  const auto result = [&](double weight, float* out) {
    if (row.saw_key) {
      scaled(weight * factor, out);
    } else {  // saw nothing: exactly 0
      std::fill(out, out + call.value_dim, 0.0f);
    }
  };
  if (output.rounds != nullptr) {
    output.rounds->add(place.query, all.max, all.sum, result);
    return all;
  }
  write_row(call.kernels, output.out.type(), output.out.row(place.item, place.head, place.query),
            call.value_dim, [&](float* out) { result(1, out); });
  if (output.rows == nullptr) return all;
  const Index at = output.first_row + call.row(place.item, place.head, place.query);
  output.rows->max[static_cast<std::size_t>(at)] = static_cast<float>(all.max);
  output.rows->sum[static_cast<std::size_t>(at)] = all.sum;
  output.lse->data()[at] = static_cast<float>((all.max + std::log2(all.sum)) * ln_2);
  return all;
}

}  // namespace rapt::detail
