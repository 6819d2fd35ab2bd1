#pragma once

#include <limits>
#include <span>

#include "rapt/pattern.h"

namespace rapt::detail {

/// A range that holds the position after it could not say where it ends.
inline constexpr Index largest_position = std::numeric_limits<Index>::max() - 1;

/// Sums that stop at the ends of Index: "as far as possible" is a legal window side.
constexpr Index saturating_add(Index a, Index b) {
  Index sum = 0;
  if (!__builtin_add_overflow(a, b, &sum)) return sum;
  return b < 0 ? std::numeric_limits<Index>::min() : std::numeric_limits<Index>::max();
}

constexpr Index saturating_subtract(Index a, Index b) {
  Index difference = 0;
  if (!__builtin_sub_overflow(a, b, &difference)) return difference;
  return b > 0 ? std::numeric_limits<Index>::min() : std::numeric_limits<Index>::max();
}

/// For factors that are not negative.
constexpr Index saturating_multiply(Index a, Index b) {
  Index product = 0;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<Index>::max() : product;
}

/// Adds the part of [begin, end) that is in [0, keys). The range must not begin before the last one
/// does; if they touch or overlap, they become one.
inline void append_clipped(Ranges& out, Index begin, Index end, Index keys) {
  begin = begin < 0 ? 0 : begin;
  end = end > keys ? keys : end;
  if (begin >= end) return;
  if (out.empty() || out.back().end < begin)
    out.push_back({begin, end});
  else if (out.back().end < end)
    out.back().end = end;
}

/// Keys in both, {0, 0} if there are none.
inline Range shared(const Range& a, const Range& b) {
  const Range both{a.begin > b.begin ? a.begin : b.begin, a.end < b.end ? a.end : b.end};
  return both.begin < both.end ? both : Range{};
}

/// How many keys the ranges hold.
Index count_keys(std::span<const Range> ranges);

/// Keys in both: time a.size() + b.size(). `out` must be neither of them.
void intersect(std::span<const Range> a, std::span<const Range> b, Ranges& out);

/// Keys in either: time a.size() + b.size(). `out` must be neither of them.
void unite(std::span<const Range> a, std::span<const Range> b, Ranges& out);

/// Brings ranges of any order that may overlap, but are not empty, into the form that Ranges
/// promises.
void normalize(Ranges& ranges);

}  // namespace rapt::detail
