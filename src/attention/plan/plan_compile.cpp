#include <algorithm>
#include <bit>
#include <limits>
#include <unordered_set>

#include "attention/pattern/pattern_node.h"
#include "attention/plan/plan_impl.h"
#include "base/check.h"
#include "base/indexed_vector.h"

namespace rapt::detail {

namespace {

constexpr std::uint64_t all_keys = ~std::uint64_t{0};

/// Bits begin .. end - 1, with 0 <= begin < end <= 64.
std::uint64_t bits_between(Index begin, Index end) {
  return (all_keys >> (Plan::tile - (end - begin))) << begin;
}

std::uint64_t hash_of(const MaskWords& mask) {
  std::uint64_t hash = 0;
  for (const std::uint64_t word : mask.rows)
    hash = std::rotl((hash ^ word) * 0x9E3779B97F4A7C15u, 29);
  return hash * 0x9E3779B97F4A7C15u;
}

/// Gives equal masks one number.
class MaskStore {
 public:
  explicit MaskStore(IndexedVector<MaskWords>& masks)
      : masks_(masks), ids_(0, Hash{&masks}, Equal{&masks}) {}

  std::int32_t id_of(const MaskWords& mask) {
    check(std::ssize(masks_) < std::numeric_limits<std::int32_t>::max(),
          "plan: more different masks than 32 bits can number");
    if (masks_.empty()) {  // most calls of one query have no second one: no set for them
      masks_.push_back(mask);
      return 0;
    }
    if (ids_.empty()) ids_.insert(0);
    // Stored first, so that the set need only know numbers; taken back if it was there before.
    masks_.push_back(mask);
    const auto [id, fresh] = ids_.insert(static_cast<std::int32_t>(masks_.size() - 1));
    if (!fresh) masks_.pop_back();
    return *id;
  }

 private:
  static const MaskWords& at(const IndexedVector<MaskWords>* masks, std::int32_t id) {
    return (*masks)[id];
  }
  struct Hash {
    const IndexedVector<MaskWords>* masks;
    std::size_t operator()(std::int32_t id) const { return hash_of(at(masks, id)); }
  };
  struct Equal {
    const IndexedVector<MaskWords>* masks;
    bool operator()(std::int32_t a, std::int32_t b) const { return at(masks, a) == at(masks, b); }
  };

  IndexedVector<MaskWords>& masks_;
  std::unordered_set<std::int32_t, Hash, Equal> ids_;
};

/// Compiles one query tile after another: gets the ranges of its rows, finds runs of key tiles that
/// have the same mask, and computes the mask of one tile of each run. The cost of each step is
/// proportional to the number of range ends.
class Compiler {
 public:
  Compiler(const Pattern& pattern, Plan::Impl& impl)
      : pattern_(node_of(pattern)),
        scratch_(scratch_for(*pattern_)),
        rows_(std::min(Plan::tile, impl.lengths.queries)),
        impl_(impl),
        masks_(impl.masks) {
    edges_.reserve(8);  // as many as a range or two have
  }

  void add_query_tile() {
    const Index first_query = std::ssize(impl_.keys_seen);
    row_count_ = to_size(std::min(Plan::tile, impl_.lengths.queries - first_query));
    for (std::size_t row = 0; row < row_count_; ++row)
      ask(row, first_query + static_cast<Index>(row));
    find_edges();
    first_visit_ = impl_.forward.visits.size();
    for (std::size_t i = 0; i + 1 < edges_.size(); ++i) add_stretch(edges_[i], edges_[i + 1]);
    impl_.forward.begins.push_back(std::ssize(impl_.forward.visits));
  }

 private:
  void ask(std::size_t row, Index query) {
    pattern_->keys_of(query_position(query, impl_.lengths), scratch_, rows_[row]);
    const Index seen = count_keys(rows_[row]);
    impl_.keys_seen.push_back(seen);
    impl_.pairs += seen;
    cursors_[row] = 0;
  }

  /// Key tiles that may look different from the tile before them: those in which a range of some
  /// row begins or ends, and those after one that a range cuts.
  void find_edges() {
    edges_.clear();
    for (std::size_t row = 0; row < row_count_; ++row) {
      const Ranges& ranges = rows_[row];
      const std::size_t known = row > 0 ? rows_[row - 1].size() : 0;
      for (std::size_t i = 0; i < ranges.size(); ++i) {
        // Rows mostly repeat the edges of the row above; leaving those out keeps the sort short.
        const Range* above = i < known ? &rows_[row - 1][i] : nullptr;
        if (!above || !same_edge(above->begin, ranges[i].begin)) add_edge(ranges[i].begin);
        if (!above || !same_edge(above->end, ranges[i].end)) add_edge(ranges[i].end);
      }
    }
    std::sort(edges_.begin(), edges_.end());
    edges_.erase(std::unique(edges_.begin(), edges_.end()), edges_.end());
  }

  static bool same_edge(Index key, Index other) {
    return key / Plan::tile == other / Plan::tile &&
           (key % Plan::tile == 0) == (other % Plan::tile == 0);
  }

  void add_edge(Index key) {
    edges_.push_back(key / Plan::tile);
    if (key % Plan::tile != 0) edges_.push_back(key / Plan::tile + 1);
  }

  /// Key tiles begin .. end - 1, which all look like the first of them.
  void add_stretch(Index begin, Index end) {
    MaskWords mask;
    std::uint64_t seen_by_any = 0;
    std::uint64_t seen_by_all = all_keys;
    for (std::size_t row = 0; row < row_count_; ++row) {
      const std::uint64_t word = keys_in_tile(row, begin);
      mask.rows[row] = word;
      seen_by_any |= word;
      seen_by_all &= word;
    }
    if (seen_by_any == 0) return;
    const bool whole = seen_by_all == all_keys;
    (whole ? impl_.whole_tiles : impl_.masked_tiles) += end - begin;
    add_run({static_cast<std::int32_t>(begin), static_cast<std::int32_t>(end - begin),
             whole ? Visit::whole : masks_.id_of(mask)});
  }

  std::uint64_t keys_in_tile(std::size_t row, Index key_tile) {
    const Ranges& ranges = rows_[row];
    const Index first_key = key_tile * Plan::tile;
    std::size_t& cursor = cursors_[row];
    while (cursor < ranges.size() && ranges[cursor].end <= first_key) ++cursor;
    std::uint64_t word = 0;
    for (std::size_t i = cursor; i < ranges.size(); ++i) {
      if (ranges[i].begin >= first_key + Plan::tile) break;
      word |= bits_between(std::max<Index>(0, ranges[i].begin - first_key),
                           std::min(Plan::tile, ranges[i].end - first_key));
    }
    return word;
  }

  void add_run(Visit run) {
    std::vector<Visit>& visits = impl_.forward.visits;
    const bool joins = visits.size() > first_visit_ && visits.back().mask == run.mask &&
                       visits.back().first + visits.back().count == run.first;
    if (joins)
      visits.back().count += run.count;
    else
      visits.push_back(run);
  }

  std::shared_ptr<const Pattern::Node> pattern_;
  std::vector<Ranges> scratch_;
  IndexedVector<Ranges> rows_;  // the ranges of each query of the tile; storage is reused
  std::array<std::size_t, Plan::tile> cursors_;  // set when a row is asked
  std::size_t row_count_ = 0;
  std::vector<Index> edges_;
  std::size_t first_visit_ = 0;
  Plan::Impl& impl_;
  MaskStore masks_;
};

/// The compiler's result for one query with one range of keys, without its buffers: a call over few
/// keys takes less time than allocating them.
void add_query(const Range& range, Plan::Impl& impl) {
  const Index count = range.end - range.begin;
  impl.keys_seen.push_back(count);
  impl.pairs = count;
  impl.forward.visits.reserve(3);
  for (Index first = range.begin; first < range.end;) {
    const Index tile = first / Plan::tile;
    const bool whole = first % Plan::tile == 0 && range.end - first >= Plan::tile;
    const Index tiles = whole ? (range.end - first) / Plan::tile : 1;
    const Index end =
        whole ? first + tiles * Plan::tile : std::min(range.end, (tile + 1) * Plan::tile);
    (whole ? impl.whole_tiles : impl.masked_tiles) += tiles;
    impl.forward.visits.push_back(
        {static_cast<std::int32_t>(tile), static_cast<std::int32_t>(tiles),
         whole ? Visit::whole : static_cast<std::int32_t>(impl.masks.size())});
    if (!whole)
      impl.masks.emplace_back().rows[0] =
          bits_between(first - tile * Plan::tile, end - tile * Plan::tile);
    first = end;
  }
  impl.forward.begins.push_back(std::ssize(impl.forward.visits));
}

}  // namespace

void compile(const Pattern& pattern, Plan::Impl& impl) {
  impl.keys_seen.reserve(impl.lengths.queries);
  impl.forward.begins.reserve(impl.query_tiles + 1);
  impl.forward.begins.push_back(0);
  if (impl.lengths.queries == 1) {
    if (const auto range = node_of(pattern)->range_of(query_position(0, impl.lengths)))
      return add_query(*range, impl);
  }
  Compiler compiler(pattern, impl);
  for (Index tile = 0; tile < impl.query_tiles; ++tile) compiler.add_query_tile();
  impl.forward.visits.shrink_to_fit();
  impl.masks.shrink_to_fit();
}

}  // namespace rapt::detail
