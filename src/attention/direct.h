#pragma once

#include <optional>
#include <span>

#include "attention/forward.h"

namespace rapt {

// The direct way of a query that sees few keys and scores them by a product alone: no plan, no
// tiles, no memory but that of the results. A short call is over before those would be made.

/// The keys of a query that may go it.
struct DirectKeys {
  Range range;    // 1 to 64 keys
  double factor;  // of q · k, in units of log2
};

/// Whether queries of this shape and score may, as far as they alone decide.
bool may_go_directly(const AnyView& q, const Attention& how);
/// Of the one query over so many keys; nothing if it goes another way, or is refused there.
std::optional<DirectKeys> direct_keys(const Attention& how, Index keys, Index dim);

/// Of a call over its operands.
std::optional<DirectKeys> direct_keys(const Call& call);

/// One item of a batch: what is computed and where its rows begin among all.
struct DirectItem {
  FewKeys few;
  Index first_row;
};

/// Sets all of them but where keys and values lie.
void set_queries(FewKeys& few, const AnyView& q, const AnyMutableView& out, Index item,
                 Index kv_heads, const DirectKeys& keys);

void run_direct(std::span<DirectItem> items, const ForwardOutput& output, const Context& context);
/// A whole call over its operands as they lie.
void run_direct(const AnyView& q, const AnyView& k, const AnyView& v, const DirectKeys& keys,
                const ForwardOutput& output, const Context& context);

}  // namespace rapt
