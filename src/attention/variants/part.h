#pragma once

#include <cstring>

#include "base/check.h"
#include "base/sizes.h"
#include "base/views.h"
#include "rapt/attention.h"

namespace rapt::detail {

// Longformer, BigBird and Reformer's local attention make several calls. A part is the batch items
// and heads of one of them, and its rows among all rows.

/// Some batch items and heads of a [batch, heads, tokens, dim] view.
struct Part {
  Index item = 0, items = 1;
  Index head = 0, heads = 1;
};

template <class V>
BasicAnyView<V> part_of(const BasicAnyView<V>& view, const Part& part) {
  Shape shape = view.shape();
  shape[0] = part.items;
  shape[1] = part.heads;
  return BasicAnyView<V>::unchecked(view.row(part.item, part.head, 0), view.type(), shape,
                                    view.strides());
}

/// Some tokens of it.
template <class V>
BasicAnyView<V> tokens_of(const BasicAnyView<V>& view, Index first, Index count) {
  Shape shape = view.shape();
  shape[2] = count;
  return BasicAnyView<V>::unchecked(view.row(0, 0, first), view.type(), shape, view.strides());
}

/// The numbers of a part, written to where they belong.
inline void copy_into(const AnyView& from, const AnyMutableView& to) {
  const auto bytes = to_size(to.dim()) * size_of(to.type());
  for (Index item = 0; item < to.batch(); ++item)
    for (Index head = 0; head < to.heads(); ++head)
      for (Index i = 0; i < to.tokens(); ++i)
        std::memcpy(to.row(item, head, i), from.row(item, head, i), bytes);
}

inline void append(Rows& to, const Rows& from) {
  to.max.insert(to.max.end(), from.max.begin(), from.max.end());
  to.sum.insert(to.sum.end(), from.sum.begin(), from.sum.end());
}

inline Rows slice(const Rows& rows, Index first, Index count) {
  Rows part;
  part.max.assign(rows.max.begin() + first, rows.max.begin() + first + count);
  part.sum.assign(rows.sum.begin() + first, rows.sum.begin() + first + count);
  return part;
}

/// Zeros for a call over all parts.
inline Attended empty_attended(const AnyView& q, const AnyView& v) {
  Attended attended;
  attended.out = Tensor({q.batch(), q.heads(), q.tokens(), v.dim()}, q.type());
  attended.lse = Tensor({q.batch(), q.heads(), q.tokens()});
  return attended;
}

/// What backward is given of a forward pass over these shapes. Throws std::invalid_argument.
inline void check_attended(const char* where, const char* forward, const AnyView& dout,
                           const AttendedView& attended, const Shape& shape) {
  check_operand(where, "dout", dout, shape);
  check_operand(where, "out", attended.out, shape);
  const Index count = shape[0] * shape[1] * shape[2];
  check(std::ssize(attended.rows.max) == count && std::ssize(attended.rows.sum) == count, where,
        ": rows have ", attended.rows.max.size(), " max and ", attended.rows.sum.size(),
        " sum, expected ", count, " of each, as ", forward, " gives with the same operands");
}

/// A seed of its own for each part: dropout of one does not repeat that of another.
inline Dropout dropout_of_part(Dropout dropout, Index number) {
  dropout.seed += static_cast<std::uint64_t>(number) * 0x9E3779B97F4A7C15u;
  return dropout;
}

}  // namespace rapt::detail
