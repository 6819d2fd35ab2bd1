#pragma once

#include <cstdint>
#include <vector>

#include "attention/lsh/lsh_order.h"

namespace rapt::detail {

/// How much a sorted key counts for a sorted query, in units of log2. A chunk that is several times
/// in a short ring of neighbours counts as often; with Lsh::Duplicates::once a key counts once for
/// a query however many rounds bring them together.
class SortedWeights {
 public:
  SortedWeights(const Lsh& lsh, const LshOrder& order);

  /// False: every key counts once, and nothing has to be added.
  bool needed() const { return once_ || repeats_; }
  void load(const std::int32_t* queries, const std::int32_t* keys);
  /// Adds the weights to the scores [64][64] of a tile where bits are set.
  void add(Index query_tile, Index key_tile, const std::uint64_t* visible, float* scores) const;

 private:
  bool within(Index query_chunk, Index key_chunk) const;
  Index repeats_of(Index query_chunk, Index key_chunk) const;
  Index meetings_of(std::int32_t query, std::int32_t key) const;
  std::vector<std::int32_t> chunks_by_position(const std::int32_t* positions) const;

  Index chunk_, chunks_, rounds_, tokens_, sorted_count_, sorted_per_round_, before_, after_;
  bool once_, repeats_;
  const std::int32_t* queries_ = nullptr;
  const std::int32_t* keys_ = nullptr;
  std::vector<std::int32_t> query_chunks_, key_chunks_;  // [tokens][rounds]
};

}  // namespace rapt::detail
