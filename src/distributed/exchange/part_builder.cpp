#include "distributed/exchange/part_builder.h"

#include <algorithm>
#include <map>

#include "attention/plan/plan_impl.h"

namespace rapt::detail {

void PartTilesBuilder::add_own(Index rank) {
  Index row = 0;
  for (const Index tile : placement_.tiles(rank)) {
    tiles_.push_back({tile, {row, TilePlace::here}});
    row += Plan::tile;
  }
}

void PartTilesBuilder::add_received(const PeerTiles& from, Index source) {
  Index row = 0;
  for (const Index tile : from.tiles) {
    tiles_.push_back({tile, {row, source}});
    row += Plan::tile;
  }
}

PartTiles PartTilesBuilder::finish() {
  std::sort(tiles_.begin(), tiles_.end(),
            [](const Tile& a, const Tile& b) { return a.number < b.number; });
  PartTiles part;
  for (const Tile& tile : tiles_) {
    part.numbers.push_back(tile.number);
    part.places.push_back(tile.place);
  }
  return part;
}

namespace {

Index tokens_in(const IndexedVector<Index>& tiles, Index tokens) {
  Index sum = 0;
  for (const Index tile : tiles) sum += std::min(Plan::tile, tokens - tile * Plan::tile);
  return sum;
}

/// Takes visits of the whole plan into that of a part.
class PartPlanner {
 public:
  PartPlanner(const Plan& whole, const CallPart& part, const distributed::Placement& keys,
              Plan::Impl& impl)
      : whole_(whole), part_(part), keys_(keys), impl_(impl), in_part_(whole.key_tiles(), -1) {
    for (Index i = 0; i < std::ssize(part.keys.numbers); ++i)
      in_part_[part.keys.numbers[i]] = static_cast<std::int32_t>(i);
  }

  void add_query_tile(Index query_tile, const MaySee& may_see) {
    first_visit_ = std::ssize(impl_.forward.visits);
    for (const Visit& visit : whole_.visits(query_tile)) {
      for (std::int32_t j = visit.first; j < visit.first + visit.count; ++j) {
        if (may_see(query_tile, keys_.rank_of_tile(j))) add_visit(in_part_[j], visit.mask);
      }
    }
    impl_.forward.begins.push_back(std::ssize(impl_.forward.visits));
    const Index first = query_tile * Plan::tile;
    const Index last = std::min(first + Plan::tile, whole_.lengths().queries);
    for (Index query = first; query < last; ++query)
      impl_.keys_seen.push_back(whole_.keys_seen(query));
    impl_.pairs += whole_.pairs(query_tile);
  }

 private:
  void add_visit(std::int32_t key_tile, std::int32_t mask) {
    ++(mask == Visit::whole ? impl_.whole_tiles : impl_.masked_tiles);
    const std::int32_t id = mask == Visit::whole ? mask : mask_of_part(mask);
    auto& visits = impl_.forward.visits;
    const bool joins = std::ssize(visits) > first_visit_ && visits.back().mask == id &&
                       visits.back().first + visits.back().count == key_tile;
    if (joins)
      ++visits.back().count;
    else
      visits.push_back({key_tile, 1, id});
  }

  std::int32_t mask_of_part(std::int32_t mask) {
    const auto [at, fresh] = masks_.emplace(mask, static_cast<std::int32_t>(impl_.masks.size()));
    if (fresh) {
      MaskWords words;
      const auto rows = whole_.mask(mask);
      std::copy(rows.begin(), rows.end(), words.rows.begin());
      impl_.masks.push_back(words);
    }
    return at->second;
  }

  const Plan& whole_;
  const CallPart& part_;
  const distributed::Placement& keys_;
  Plan::Impl& impl_;
  IndexedVector<std::int32_t> in_part_;  // number of a key tile in the part, -1: not there
  std::map<std::int32_t, std::int32_t> masks_;
  Index first_visit_ = 0;
};

}  // namespace

std::shared_ptr<const Plan> plan_of_part(const Plan& whole, const CallPart& part,
                                         const distributed::Placement& keys,
                                         const MaySee& may_see) {
  const auto impl = std::make_shared<Plan::Impl>();
  impl->pattern = whole.pattern();
  impl->lengths = {tokens_in(part.queries.numbers, whole.lengths().queries),
                   tokens_in(part.keys.numbers, whole.lengths().keys)};
  impl->query_tiles = std::ssize(part.queries.numbers);
  impl->key_tiles = std::ssize(part.keys.numbers);
  impl->forward.begins.push_back(0);
  PartPlanner planner(whole, part, keys, *impl);
  for (const Index tile : part.queries.numbers) planner.add_query_tile(tile, may_see);
  return std::make_shared<const Plan>(Access::make<Plan>(std::move(impl)));
}

}  // namespace rapt::detail
