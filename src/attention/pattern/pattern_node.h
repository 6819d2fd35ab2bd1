#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attention/pattern/ranges.h"
#include "base/access.h"
#include "base/sizes.h"
#include "rapt/lsh.h"
#include "rapt/pattern.h"

namespace rapt {
using namespace detail;

/// One query and its position.
struct QueryPosition {
  Index query = 0;
  Index position = 0;
  Index keys = 0;
};

inline QueryPosition query_position(Index query, Lengths lengths) {
  return {query, lengths.position(query), lengths.keys};
}

/// `&` binds tighter than `|`, a leaf tighter than both: the text needs parentheses where the
/// order is reversed.
enum class Binding { either, both, leaf };

/// An immutable expression. Operators are flat lists, so a chain of thousands is one level deep.
struct Pattern::Node {
  /// Deeper trees are refused when they are made: every walk over a tree may recurse.
  static constexpr Index max_height = 256;
  /// Buffers that an operator needs, besides those of its operands.
  static constexpr Index buffers_per_level = 2;

  virtual ~Node() = default;

  /// `scratch` has buffers_per_level * height() buffers, whose storage is reused.
  virtual void keys_of(const QueryPosition& at, std::span<Ranges> scratch, Ranges& out) const = 0;
  /// The same where they are one range, perhaps an empty one, that is known without a list.
  virtual std::optional<Range> range_of(const QueryPosition&) const { return std::nullopt; }
  virtual void fit(Lengths lengths) const = 0;
  /// The same without positions that are not among so many keys; null: as it is.
  virtual std::shared_ptr<const Node> among(Index keys) const = 0;
  virtual void write(std::string& text) const = 0;
  virtual bool equals(const Node& other) const = 0;
  virtual Binding binding() const = 0;
  virtual Index height() const = 0;
  /// Whether an lsh leaf is anywhere in it.
  virtual bool has_lsh() const { return false; }
};

}  // namespace rapt

namespace rapt::detail {

/// A leaf is a plain value: its fields, the keys it gives (as range_of, if they are always one
/// range, which may reach beyond the keys there are), the lengths it fits, its text.
template <class Leaf>
class LeafNode final : public Pattern::Node {
 public:
  explicit LeafNode(Leaf leaf) : leaf_(std::move(leaf)) {}

  void keys_of(const QueryPosition& at, std::span<Ranges>, Ranges& out) const override {
    out.clear();
    if constexpr (requires { leaf_.range_of(at); }) {
      const Range range = leaf_.range_of(at);
      append_clipped(out, range.begin, range.end, at.keys);
    } else {
      leaf_.keys_of(at, out);
    }
  }
  std::optional<Range> range_of(const QueryPosition& at) const override {
    if constexpr (requires { leaf_.range_of(at); })
      return shared(leaf_.range_of(at), {0, at.keys});
    else
      return std::nullopt;
  }
  void fit(Lengths lengths) const override {
    if constexpr (requires { leaf_.fit(lengths); }) leaf_.fit(lengths);
  }
  std::shared_ptr<const Node> among(Index keys) const override {
    if constexpr (requires { leaf_.among(keys); }) {
      auto some = leaf_.among(keys);
      if (!(some == leaf_)) return std::make_shared<const LeafNode>(std::move(some));
    }
    return nullptr;
  }
  void write(std::string& text) const override { text += leaf_.text(); }
  bool equals(const Node& other) const override {
    const auto* same = dynamic_cast<const LeafNode*>(&other);
    return same != nullptr && same->leaf_ == leaf_;
  }
  Binding binding() const override { return Binding::leaf; }
  Index height() const override { return 0; }

 private:
  Leaf leaf_;
};

inline const std::shared_ptr<const Pattern::Node>& node_of(const Pattern& pattern) {
  return Access::node(pattern);
}
inline Pattern pattern_of(std::shared_ptr<const Pattern::Node> node) {
  return Access::make<Pattern>(std::move(node));
}

template <class Leaf>
Pattern leaf_pattern(Leaf leaf) {
  return pattern_of(std::make_shared<const LeafNode<Leaf>>(std::move(leaf)));
}

/// Buffers for repeated calls of keys_of.
inline std::vector<Ranges> scratch_for(const Pattern::Node& node) {
  return std::vector<Ranges>(to_size(Pattern::Node::buffers_per_level * node.height()));
}

/// The pattern for so many keys or fewer, without tokens(...) that do not exist yet. When the
/// sequence has grown to them, the pattern has them again.
Pattern among(const Pattern& pattern, Index keys);

/// The patterns joined by `&` (Binding::both) or `|` (Binding::either), at least one.
Pattern join(Binding binding, std::span<const Pattern> parts);

/// The lsh leaf of a pattern and the pattern it is combined with by &. Throws std::invalid_argument
/// if it is anywhere else, or twice.
struct SplitPattern {
  std::optional<Lsh> lsh;
  Pattern rest;
};
SplitPattern split_lsh(const Pattern& pattern);
/// Null if the node is not an lsh leaf.
const Lsh* lsh_of(const Pattern::Node& node);

/// What mask() becomes: the keys of each query, already sorted, as the text form mask(...) gives
/// them.
Pattern mask(Index keys, std::vector<Ranges> keys_of_query);

/// "{1, 2, 3}"
std::string list_text(std::span<const Index> numbers);

}  // namespace rapt::detail
