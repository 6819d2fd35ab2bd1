#pragma once

#include <compare>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rapt/tensor.h"

namespace rapt {

/// How many queries and keys a call has. Queries are the newest positions: query i is at position
/// position keys - queries + i.
struct Lengths {
  Index queries = 0;
  Index keys = 0;
  Index position(Index query) const { return keys - queries + query; }
  bool operator==(const Lengths&) const = default;
};

/// Keys begin, begin + 1, ..., end - 1.
struct Range {
  Index begin = 0;
  Index end = 0;
  bool operator==(const Range&) const = default;
};

/// Sorted, disjoint, not touching, not empty.
using Ranges = std::vector<Range>;

/// How the diagonal is aligned when there are fewer queries than keys: `last` (queries are the
/// newest positions) is rapt's rule everywhere; `first` puts query i at position i, as PyTorch's
/// SDPA does.
enum class Align { last, first };
template <>
inline constexpr EnumNames enum_names<Align>{"align", "last, first"};

/// Who may see whom: a set of (query, key) pairs, a value with set algebra. It never becomes a
/// queries x keys mask.
class RAPT_API Pattern {
 public:
  /// Every query sees every key.
  Pattern();

  /// The keys that `query` may see, as sorted ranges inside [0, lengths.keys).
  /// Throws std::invalid_argument if there is no such query or the pattern does not fit the lengths
  /// (documents longer than the keys, ...).
  Ranges keys_of(Index query, Lengths lengths) const;
  /// The same into a buffer whose storage is reused.
  void keys_of(Index query, Lengths lengths, Ranges& out) const;
  /// Throws std::invalid_argument if the pattern does not fit these lengths.
  void check(Lengths lengths) const;

  /// The pattern with this text. `&` binds tighter than `|`; parentheses group; space means
  /// nothing. Lists are in braces, as in C++. Throws std::invalid_argument naming the column of the
  /// first mistake and what was expected there.
  static Pattern parse(std::string_view text);

  /// Chains are flat: (a & b) & c equals a & (b & c). Throws std::invalid_argument if & and |
  /// alternate over more than 256 levels.
  friend RAPT_API Pattern operator&(const Pattern& a, const Pattern& b);
  friend RAPT_API Pattern operator|(const Pattern& a, const Pattern& b);
  friend RAPT_API bool operator==(const Pattern& a, const Pattern& b);

  struct Node;

 private:
  friend struct detail::Access;
  explicit Pattern(std::shared_ptr<const Node> node);
  std::shared_ptr<const Node> node_;
};

/// The text form, "window(512, 0) | tokens({0})". Pattern::parse(to_string(pattern)) is equal to
/// the pattern.
RAPT_API std::string to_string(const Pattern& pattern);

/// Every pair.
RAPT_API Pattern full();
/// Keys at or before the query's position.
RAPT_API Pattern causal(Align align = Align::last);
/// Keys from `left` before to `right` after the query's position, both ends included. A negative
/// side shifts the window: window(-1, 5) is the next five keys. The largest Index means "no limit".
RAPT_API Pattern window(Index left, Index right, Align align = Align::last);
/// Global tokens: every query sees these positions, and a query at one of them sees every key.
/// Positions given twice count once. Throws if there are fewer keys than the last position.
RAPT_API Pattern tokens(std::vector<Index> positions);
/// The first n positions see each other: `causal() | prefix(n)` is a prefix language model.
RAPT_API Pattern prefix(Index n);
/// Packed sequences: a query sees the keys of its own document. Positions past the last document
/// see nothing.
RAPT_API Pattern documents(std::vector<Index> lengths);
/// Packed sequences with different query and key lengths per document (cross-attention): queries
/// are counted from the first query, keys from the first key.
RAPT_API Pattern documents(std::vector<Index> query_lengths, std::vector<Index> key_lengths);
/// Block-sparse: query block r (positions r * size ...) sees the key blocks table[r]; blocks past
/// the table see nothing.
RAPT_API Pattern blocks(Index size, std::vector<std::vector<Index>> table);
/// Only the first n keys exist (the rest is padding).
RAPT_API Pattern keys(Index n);
/// Reformer's local attention: the keys are cut into chunks in a ring, and a query sees its own
/// chunk and those before and after it; the first chunk follows the last one. A chunk counts once,
/// however short the ring is.
RAPT_API Pattern chunks(Index size, Index before, Index after);
/// Every step-th key around the query: position + m * step for -left <= m <= right.
RAPT_API Pattern dilated(Index step, Index left, Index right);
/// A dense boolean mask [queries, keys], row-major, true = may see; turned into ranges once. It
/// fits these lengths only. Its text is rows(keys, {{0:3, 5:7}, {}, ...}), one list of ranges
/// begin:end per query.
RAPT_API Pattern mask(std::span<const bool> may_see, Index queries, Index keys);

}  // namespace rapt
