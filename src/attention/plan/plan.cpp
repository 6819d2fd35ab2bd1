#include "rapt/plan.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "attention/plan/plan_impl.h"
#include "base/check.h"
#include "base/sizes.h"

namespace rapt {
using namespace detail;

namespace {

template <class T>
Index bytes_of(const std::vector<T>& numbers) {
  return static_cast<Index>(numbers.capacity() * sizeof(T));
}

Index tiles_of(Index tokens, const char* what) {
  constexpr Index most = Plan::tile * std::numeric_limits<std::int32_t>::max();
  check(tokens <= most, "plan: ", tokens, " ", what, " given, expected at most ", most);
  return divide_up(tokens, Plan::tile);
}

void check_tile(Index tile, Index tiles, const char* what) {
  check(tile >= 0 && tile < tiles, "plan: ", what, " tile ", tile, " asked for, expected one of ",
        tiles);
}

}  // namespace

Index RunLists::bytes() const { return bytes_of(begins) + bytes_of(visits); }

const RunLists& Plan::Impl::backward() const {
  std::call_once(backward_once_, [this] {
    backward_ = transpose(forward, query_tiles, key_tiles);
    backward_bytes_ = backward_.bytes();
  });
  return backward_;
}

Index Plan::Impl::bytes() const {
  return static_cast<Index>(sizeof(Impl)) + forward.bytes() + bytes_of(masks) +
         bytes_of(keys_seen) + backward_bytes_;
}

Plan::Plan(const Pattern& pattern, Lengths lengths) {
  pattern.check(lengths);
  const auto impl = std::make_shared<Impl>();
  impl->pattern = pattern;
  impl->lengths = lengths;
  impl->query_tiles = tiles_of(lengths.queries, "queries");
  impl->key_tiles = tiles_of(lengths.keys, "keys");
  Index most_pairs = 0;
  check(!__builtin_mul_overflow(lengths.queries, lengths.keys, &most_pairs),
        "plan: ", lengths.queries, " queries times ", lengths.keys, " keys do not fit 64 bits");
  compile(pattern, *impl);
  impl_ = impl;
}

const Pattern& Plan::pattern() const { return impl_->pattern; }
Lengths Plan::lengths() const { return impl_->lengths; }
Index Plan::query_tiles() const { return impl_->query_tiles; }
Index Plan::key_tiles() const { return impl_->key_tiles; }

std::span<const Visit> Plan::visits(Index query_tile) const {
  check_tile(query_tile, query_tiles(), "query");
  return impl_->forward.of(query_tile);
}

std::span<const Visit> Plan::visitors(Index key_tile) const {
  check_tile(key_tile, key_tiles(), "key");
  return impl_->backward().of(key_tile);
}

std::span<const std::uint64_t, Plan::tile> Plan::mask(std::int32_t id) const {
  check(id >= 0 && id < masks(), "plan: mask ", id, " asked for, expected one of ", masks());
  return impl_->masks[id].rows;
}

Index Plan::masks() const { return std::ssize(impl_->masks); }

Index Plan::keys_seen(Index query) const {
  check(query >= 0 && query < lengths().queries, "plan: query ", query,
        " asked for, expected one of ", lengths().queries);
  return impl_->keys_seen[query];
}

Index Plan::pairs() const { return impl_->pairs; }

Index Plan::pairs(Index query_tile) const {
  check_tile(query_tile, query_tiles(), "query");
  const auto first = impl_->keys_seen.begin() + query_tile * tile;
  const auto last = impl_->keys_seen.begin() + std::min((query_tile + 1) * tile, lengths().queries);
  return std::accumulate(first, last, Index{0});
}

Index Plan::whole_tiles() const { return impl_->whole_tiles; }
Index Plan::masked_tiles() const { return impl_->masked_tiles; }
Index Plan::bytes() const { return impl_->bytes(); }

}  // namespace rapt
