#include <algorithm>

#include "attention/pattern/pattern_node.h"
#include "base/check.h"
#include "base/indexed_vector.h"
#include "base/sizes.h"

namespace rapt {
using namespace detail;

namespace {

/// Lengths as running sums 0, l0, l0 + l1, ...: the form in which a position is looked up.
std::vector<Index> starts_of(std::span<const Index> lengths, const char* what) {
  std::vector<Index> starts = {0};
  starts.reserve(lengths.size() + 1);
  for (const Index length : lengths) {
    check(length >= 0, "documents: ", what, "length ", length, " of document ", starts.size() - 1,
          " given, expected 0 or more");
    check(length <= std::numeric_limits<Index>::max() - starts.back(), "documents: the ", what,
          "lengths add up to more than 64 bits hold");
    starts.push_back(starts.back() + length);
  }
  return starts;
}

std::vector<Index> lengths_of(std::span<const Index> starts) {
  std::vector<Index> lengths;
  for (std::size_t i = 1; i < starts.size(); ++i) lengths.push_back(starts[i] - starts[i - 1]);
  return lengths;
}

/// The document that holds a position, or -1.
Index document_at(std::span<const Index> starts, Index position) {
  if (position < 0 || position >= starts.back()) return -1;
  return std::upper_bound(starts.begin(), starts.end(), position) - starts.begin() - 1;
}

struct Documents {
  IndexedVector<Index> starts;
  bool operator==(const Documents&) const = default;
  void keys_of(const QueryPosition& at, Ranges& out) const {
    const Index document = document_at(starts, at.position);
    if (document < 0) return;
    append_clipped(out, starts[document], starts[document + 1], at.keys);
  }
  void fit(Lengths lengths) const {
    check(starts.back() <= lengths.keys, "documents: the lengths add up to ", starts.back(),
          ", expected at most the ", lengths.keys, " keys");
  }
  std::string text() const { return "documents(" + list_text(lengths_of(starts)) + ")"; }
};

struct CrossDocuments {
  IndexedVector<Index> query_starts;
  IndexedVector<Index> key_starts;
  bool operator==(const CrossDocuments&) const = default;
  void keys_of(const QueryPosition& at, Ranges& out) const {
    const Index document = document_at(query_starts, at.query);
    if (document < 0) return;
    append_clipped(out, key_starts[document], key_starts[document + 1], at.keys);
  }
  void fit(Lengths lengths) const {
    check(query_starts.back() <= lengths.queries, "documents: the query lengths add up to ",
          query_starts.back(), ", expected at most the ", lengths.queries, " queries");
    check(key_starts.back() <= lengths.keys, "documents: the key lengths add up to ",
          key_starts.back(), ", expected at most the ", lengths.keys, " keys");
  }
  std::string text() const {
    return "documents(" + list_text(lengths_of(query_starts)) + ", " +
           list_text(lengths_of(key_starts)) + ")";
  }
};

/// Ranges of many rows, one after another.
struct Table {
  IndexedVector<Index> begins = {0};
  Ranges ranges;
  bool operator==(const Table&) const = default;

  Index rows() const { return static_cast<Index>(begins.size()) - 1; }
  std::span<const Range> row(Index number) const {
    return {ranges.data() + begins[number], ranges.data() + begins[number + 1]};
  }
  /// Closes the row whose ranges have been pushed.
  void end_row() { begins.push_back(static_cast<Index>(ranges.size())); }
};

template <class RowText>
std::string table_text(const Table& table, const RowText& row_text) {
  std::string text = "{";
  for (Index row = 0; row < table.rows(); ++row) {
    if (row > 0) text += ", ";
    text += row_text(table.row(row));
  }
  return text + "}";
}

/// Ranges of the table count blocks, so neighbouring blocks cost one range.
struct Blocks {
  Index size;
  Index last;  // the largest block named, -1 if none is
  Table table;
  bool operator==(const Blocks&) const = default;
  void keys_of(const QueryPosition& at, Ranges& out) const {
    if (at.position < 0 || at.position / size >= table.rows()) return;
    for (const Range& block : table.row(at.position / size))
      append_clipped(out, saturating_multiply(block.begin, size),
                     saturating_multiply(block.end, size), at.keys);
  }
  void fit(Lengths lengths) const {
    check(last < 0 || saturating_multiply(last, size) < lengths.keys, "blocks: key block ", last,
          " of size ", size, " does not exist among ", lengths.keys, " keys");
  }
  static std::string row_text(std::span<const Range> row) {
    std::vector<Index> blocks;
    for (const Range& range : row)
      for (Index block = range.begin; block < range.end; ++block) blocks.push_back(block);
    return list_text(blocks);
  }
  std::string text() const {
    return "blocks(" + std::to_string(size) + ", " + table_text(table, row_text) + ")";
  }
};

void push_blocks(Table& table, std::vector<Index> blocks) {
  std::sort(blocks.begin(), blocks.end());
  const auto first = static_cast<std::ptrdiff_t>(table.ranges.size());
  for (const Index block : blocks) {
    check(block >= 0 && block <= largest_position, "blocks: key block ", block,
          " given for query block ", table.rows(), ", expected 0 to ", largest_position);
    const bool row_begins = std::ssize(table.ranges) == first;
    check(row_begins || table.ranges.back().end <= block, "blocks: query block ", table.rows(),
          " names key block ", block, " twice");
    if (!row_begins && table.ranges.back().end == block)
      table.ranges.back().end = block + 1;
    else
      table.ranges.push_back({block, block + 1});
  }
  table.end_row();
}

/// Queries by number, not by position: a mask fits one pair of lengths only.
struct MaskRows {
  Index keys;
  Table table;
  bool operator==(const MaskRows&) const = default;
  void keys_of(const QueryPosition& at, Ranges& out) const {
    const std::span<const Range> row = table.row(at.query);
    out.assign(row.begin(), row.end());
  }
  void fit(Lengths lengths) const {
    check(lengths == Lengths{table.rows(), keys}, "mask: made for ", table.rows(), " queries and ",
          keys, " keys, given ", lengths.queries, " queries and ", lengths.keys, " keys");
  }
  static std::string row_text(std::span<const Range> row) {
    std::string text = "{";
    for (const Range& range : row) {
      if (text.size() > 1) text += ", ";
      text += std::to_string(range.begin) + ":" + std::to_string(range.end);
    }
    return text + "}";
  }
  std::string text() const {
    return "mask(" + std::to_string(keys) + ", " + table_text(table, row_text) + ")";
  }
};

void push_true_runs(Table& table, std::span<const bool> row) {
  for (auto end = row.begin(); end != row.end();) {
    const auto begin = std::find(end, row.end(), true);
    end = std::find(begin, row.end(), false);
    if (begin != end) table.ranges.push_back({begin - row.begin(), end - row.begin()});
  }
  table.end_row();
}

}  // namespace

Pattern documents(std::vector<Index> lengths) {
  return leaf_pattern(Documents{starts_of(lengths, "")});
}

Pattern documents(std::vector<Index> query_lengths, std::vector<Index> key_lengths) {
  check(query_lengths.size() == key_lengths.size(), "documents: ", query_lengths.size(),
        " query lengths and ", key_lengths.size(), " key lengths given, expected as many of both");
  return leaf_pattern(
      CrossDocuments{starts_of(query_lengths, "query "), starts_of(key_lengths, "key ")});
}

Pattern blocks(Index size, std::vector<std::vector<Index>> table) {
  check(size >= 1, "blocks: size is ", size, ", expected 1 or more");
  Blocks leaf{size, -1, {}};
  for (std::vector<Index>& row : table) push_blocks(leaf.table, std::move(row));
  for (const Range& range : leaf.table.ranges) leaf.last = std::max(leaf.last, range.end - 1);
  return leaf_pattern(std::move(leaf));
}

Pattern mask(std::span<const bool> may_see, Index queries, Index keys) {
  check(queries >= 0 && keys >= 0, "mask: ", queries, " queries and ", keys,
        " keys given, expected 0 or more of each");
  check(std::ssize(may_see) == checked_product({queries, keys}), "mask: ", may_see.size(),
        " values given for ", queries, " queries and ", keys, " keys, expected their product");
  MaskRows leaf{keys, {}};
  for (Index query = 0; query < queries; ++query)
    push_true_runs(leaf.table, may_see.subspan(to_size(query * keys), to_size(keys)));
  return leaf_pattern(std::move(leaf));
}

Pattern detail::mask(Index keys, std::vector<Ranges> keys_of_query) {
  check(keys >= 0, "mask: ", keys, " keys given, expected 0 or more");
  MaskRows leaf{keys, {}};
  for (const Ranges& row : keys_of_query) {
    Index last_end = -1;
    for (const Range& range : row) {
      check(range.begin >= 0 && range.begin < range.end && range.end <= keys, "mask: ", range.begin,
            ":", range.end, " is not a range of the ", keys, " keys");
      check(range.begin > last_end, "mask: ", range.begin, ":", range.end,
            " does not begin after the range before it, which ends at ", last_end);
      last_end = range.end;
      leaf.table.ranges.push_back(range);
    }
    leaf.table.end_row();
  }
  return leaf_pattern(std::move(leaf));
}

}  // namespace rapt
