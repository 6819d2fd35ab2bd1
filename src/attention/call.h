#pragma once

#include <cassert>
#include <memory>

#include "attention/lsh/sorted_rule.h"
#include "attention/request.h"
#include "attention/score/relative_tiles.h"
#include "attention/score/score_rule.h"
#include "base/buffer.h"
#include "base/prefetch.h"
#include "base/sizes.h"
#include "base/views.h"
#include "kernels/bf16_kernels.h"
#include "kernels/context.h"
#include "kernels/network_kernels.h"
#include "rapt/attention.h"

namespace rapt::detail {

/// The order of tokens that are sorted, perhaps several times: query or key i of the call is row
/// rows[i] of its operand, negative: no token. Its results go to the same row; those of tokens from
/// `adds_from` on are added to what is there.
struct TokenOrder {
  const std::int32_t* rows;
  Index adds_from;
};

/// One checked attention call: operands, sizes, plan and score rule. Every stage reads it, none
/// changes it.
struct Call {
  /// Of a validated request. Throws std::invalid_argument if the pattern or the scale does not fit
  /// its lengths.
  explicit Call(const Request& request);

  AnyView q, k, v;
  const Attention& how;
  const Context& context;
  const Kernels& kernels;
  Index batch, heads, kv_heads, group;  // group: query heads per key head
  Index queries, keys, dim, value_dim;
  std::shared_ptr<const Plan> plan;
  ScoreRule score_rule;
  std::unique_ptr<const RelativeTiles> relative;         // null without relative keys
  std::unique_ptr<const RelativeTiles> relative_values;  // likewise
  const SortedRule* sorted_rule = nullptr;  // restricts the plan where tokens are sorted by hash
  const TokenOrder* query_order = nullptr;  // null: in order
  const TokenOrder* key_order = nullptr;
  const double* key_factors = nullptr;  // what each key is multiplied with; null: nothing

  Index query_tiles() const { return plan->query_tiles(); }
  Index key_tiles() const { return plan->key_tiles(); }
  Index rows() const { return batch * heads * queries; }
  /// Index of (item, head, query) in row-major [batch, heads, queries].
  Index row(Index item, Index head, Index query) const {
    return (item * heads + head) * queries + query;
  }
  Index kv_head(Index head) const { return head / group; }
  /// Rows of the query tile that exist; likewise keys.
  Index tile_rows(Index query_tile) const { return std::min(tile, queries - query_tile * tile); }
  Index tile_keys(Index key_tile) const { return std::min(tile, keys - key_tile * tile); }
  const double* factors_of_keys(Index key_tile) const {
    return key_factors == nullptr ? nullptr : key_factors + key_tile * tile;
  }
  /// Position of a query tile's first row minus the position of a key tile's first key.
  Index distance(Index query_tile, Index key_tile) const {
    return keys - queries + (query_tile - key_tile) * tile;
  }
  /// Tokens of a tile out of an operand that has rows for queries, or for keys.
  InputRows query_rows(const AnyView& operand, Index item, Index head, Index query_tile) const;
  InputRows key_rows(const AnyView& operand, Index item, Index kv_head, Index key_tile) const;
};

/// `count` tokens of one head, as the kernels take them.
inline InputRows rows_of(const AnyView& view, Index item, Index head, Index first, Index count) {
  return {view.row(item, head, first), view.type(), view.stride(2), count};
}

inline InputRows rows_of(const AnyView& view, Index item, Index head, Index first, Index count,
                         const TokenOrder* order) {
  if (order == nullptr) return rows_of(view, item, head, first, count);
  return {view.row(item, head, 0), view.type(), view.stride(2), count, order->rows + first};
}

inline InputRows Call::query_rows(const AnyView& operand, Index item, Index head,
                                  Index query_tile) const {
  return rows_of(operand, item, head, query_tile * tile, tile_rows(query_tile), query_order);
}

inline InputRows Call::key_rows(const AnyView& operand, Index item, Index kv_head,
                                Index key_tile) const {
  return rows_of(operand, item, kv_head, key_tile * tile, tile_keys(key_tile), key_order);
}

/// Prefetches rows that are in no order: packing would wait for each of them.
inline void prefetch_rows(const InputRows& rows, Index numbers) {
  if (rows.order == nullptr) return;
  const Index number_bytes = static_cast<Index>(size_of(rows.type));
  for (Index i = 0; i < rows.count; ++i) {
    if (rows.order[i] < 0) continue;
    const char* row =
        static_cast<const char*>(rows.data) + rows.order[i] * rows.stride * number_bytes;
    prefetch_lines(row, numbers * number_bytes);
  }
}

/// The same for numbers that are read and written.
template <class T>
void prefetch_numbers(const T* numbers, Index count) {
  prefetch_lines(numbers, count * static_cast<Index>(sizeof(T)));
}

/// The row of the results of token i, negative: none.
inline Index place_of(const TokenOrder* order, Index i) {
  return order == nullptr ? i : Index{order->rows[i]};
}

/// Writes one row of `count` elements of any type: fill(float*) computes them in f32.
template <class Fill>
void write_row(const Kernels& kernels, Type type, void* to, Index count, const Fill& fill) {
  if (type == Type::f32) return fill(static_cast<float*>(to));
  float row[max_dim];
  fill(row);
  kernels.vectors.store(row, count, type, to);
}

/// fill(float*) computes the result of token i of one head. This writes it to the token's row, or
/// adds it to the row, which is f32 then.
template <class Fill>
void deliver_row(const Kernels& kernels, const TokenOrder* order, const AnyMutableView& to,
                 Index item, Index head, Index i, const Fill& fill) {
  const Index place = place_of(order, i);
  if (place < 0) return;
  void* row = to.row(item, head, place);
  if (order == nullptr || i < order->adds_from)
    return write_row(kernels, to.type(), row, to.dim(), fill);
  assert(to.type() == Type::f32);
  float share[max_dim];
  fill(share);
  kernels.network->add(static_cast<float*>(row), share, to.dim());
}

/// Prefetches the rows that `count` tokens will be added to.
inline void prefetch_results(const TokenOrder* order, const AnyMutableView& to, Index first,
                             Index count) {
  if (order == nullptr) return;
  for (Index i = first; i < first + count; ++i) {
    if (order->rows[i] < 0) continue;
    prefetch_numbers(static_cast<const float*>(to.row(0, 0, order->rows[i])), to.dim());
  }
}

}  // namespace rapt::detail
