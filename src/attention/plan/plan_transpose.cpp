#include <algorithm>

#include "attention/plan/plan_impl.h"
#include "base/indexed_vector.h"

namespace rapt::detail {

namespace {

/// Not a mask: the tile is not visited.
constexpr std::int32_t absent = -2;

/// The runs of one query tile as a function of the key tile, in steps.
class Steps {
 public:
  Steps(std::span<const Visit> runs, Index key_tiles) : runs_(runs), key_tiles_(key_tiles) {}

  /// The mask at `tile`, which must not decrease from call to call.
  std::int32_t mask_at(Index tile) {
    while (!runs_.empty() && end_of(runs_.front()) <= tile) runs_ = runs_.subspan(1);
    return runs_.empty() || runs_.front().first > tile ? absent : runs_.front().mask;
  }
  /// The first tile after that of the last call where the mask may change.
  Index step_after(Index tile) const {
    if (runs_.empty()) return key_tiles_;
    return runs_.front().first > tile ? runs_.front().first : end_of(runs_.front());
  }

 private:
  static Index end_of(const Visit& run) { return Index{run.first} + run.count; }

  std::span<const Visit> runs_;
  Index key_tiles_;
};

/// Walks over the query tiles and touches only the key tiles where something changes, so a run that
/// continues costs nothing.
class Transposer {
 public:
  explicit Transposer(Index key_tiles) : open_(key_tiles, Visit{0, 0, absent}) {}

  /// What changes from the runs `before` to the runs `after`, which are those of `query_tile`.
  void change(std::span<const Visit> before, std::span<const Visit> after, Index query_tile) {
    const Index key_tiles = std::ssize(open_);
    Steps old_steps(before, key_tiles);
    Steps new_steps(after, key_tiles);
    for (Index tile = 0; tile < key_tiles;) {
      const std::int32_t old_mask = old_steps.mask_at(tile);
      const std::int32_t new_mask = new_steps.mask_at(tile);
      const Index end = std::min(old_steps.step_after(tile), new_steps.step_after(tile));
      if (old_mask != new_mask)
        for (Index changed = tile; changed < end; ++changed)
          set_mask(changed, query_tile, new_mask);
      tile = end;
    }
  }

  RunLists sorted() const {
    RunLists lists;
    lists.begins.assign(open_.size() + 1, 0);
    for (const Closed& closed : closed_) ++lists.begins[closed.key_tile + 1];
    for (std::size_t tile = 0; tile < open_.size(); ++tile)
      lists.begins[tile + 1] += lists.begins[tile];
    lists.visits.resize(closed_.size());
    IndexedVector<Index> next = lists.begins;
    for (const Closed& closed : closed_) lists.visits[next[closed.key_tile]++] = closed.run;
    return lists;
  }

 private:
  struct Closed {
    std::uint32_t key_tile;
    Visit run;
  };

  /// Ends the run that is open at a key tile and begins another.
  void set_mask(Index key_tile, Index query_tile, std::int32_t mask) {
    Visit& run = open_[key_tile];
    const auto now = static_cast<std::int32_t>(query_tile);
    if (run.mask != absent)
      closed_.push_back(
          {static_cast<std::uint32_t>(key_tile), {run.first, now - run.first, run.mask}});
    run = {now, 0, mask};
  }

  IndexedVector<Visit> open_;   // per key tile, its count not yet known
  std::vector<Closed> closed_;  // in the order of their ends
};

}  // namespace

RunLists transpose(const RunLists& forward, Index query_tiles, Index key_tiles) {
  Transposer transposer(key_tiles);
  std::span<const Visit> before;
  for (Index tile = 0; tile < query_tiles; ++tile) {
    transposer.change(before, forward.of(tile), tile);
    before = forward.of(tile);
  }
  transposer.change(before, {}, query_tiles);
  return transposer.sorted();
}

}  // namespace rapt::detail
