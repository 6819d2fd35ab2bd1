#include "attention/lsh/sorted_weights.h"

#include <bit>
#include <cmath>

#include "base/indexed_vector.h"
#include "base/sizes.h"

namespace rapt::detail {

SortedWeights::SortedWeights(const Lsh& lsh, const LshOrder& order)
    : chunk_(lsh.chunk),
      chunks_(order.sorted() ? order.sorted_count() / lsh.chunk : 1),
      rounds_(order.rounds()),
      tokens_(order.tokens()),
      sorted_count_(order.sorted_count()),
      sorted_per_round_(order.sorted_per_round()),
      before_(lsh.before),
      after_(lsh.after),
      once_(order.sorted() && lsh.duplicates == Lsh::Duplicates::once),
      repeats_(order.sorted() && !once_ && before_ + after_ + 1 > chunks_) {}

std::vector<std::int32_t> SortedWeights::chunks_by_position(const std::int32_t* positions) const {
  IndexedVector<std::int32_t> chunks(tokens_ * rounds_);
  for (Index s = 0; s < sorted_count_; ++s) {
    if (positions[s] >= 0)
      chunks[positions[s] * rounds_ + s / sorted_per_round_] =
          static_cast<std::int32_t>(s / chunk_);
  }
  return chunks;
}

void SortedWeights::load(const std::int32_t* queries, const std::int32_t* keys) {
  queries_ = queries;
  keys_ = keys;
  if (!once_) return;
  query_chunks_ = chunks_by_position(queries);
  key_chunks_ = chunks_by_position(keys);
}

bool SortedWeights::within(Index query_chunk, Index key_chunk) const {
  const Index ahead = (key_chunk - query_chunk + chunks_) % chunks_;
  return ahead <= after_ || chunks_ - ahead <= before_;
}

Index SortedWeights::repeats_of(Index query_chunk, Index key_chunk) const {
  const Index ahead = (key_chunk - query_chunk + chunks_) % chunks_;
  // Steps from -before to after that end there after any number of rounds along the ring.
  return divide_down(after_ - ahead, chunks_) - divide_down(-before_ - 1 - ahead, chunks_);
}

/// How often the query sees the key, over all rounds.
Index SortedWeights::meetings_of(std::int32_t query, std::int32_t key) const {
  const std::int32_t* from = query_chunks_.data() + query * rounds_;
  const std::int32_t* to = key_chunks_.data() + key * rounds_;
  Index count = 0;
  for (Index a = 0; a < rounds_; ++a) {
    for (Index b = 0; b < rounds_; ++b) count += within(from[a], to[b]);
  }
  return count;
}

void SortedWeights::add(Index query_tile, Index key_tile, const std::uint64_t* visible,
                        float* scores) const {
  for (Index r = 0; r < tile; ++r) {
    for (std::uint64_t word = visible[r]; word != 0; word &= word - 1) {
      const Index c = std::countr_zero(word);
      const Index query = query_tile * tile + r, key = key_tile * tile + c;
      if (query >= sorted_count_ || key >= sorted_count_ || queries_[query] < 0 || keys_[key] < 0)
        continue;
      const double weight =
          once_ ? -std::log2(static_cast<double>(meetings_of(queries_[query], keys_[key])))
                : std::log2(static_cast<double>(repeats_of(query / chunk_, key / chunk_)));
      scores[r * tile + c] += static_cast<float>(weight);
    }
  }
}

}  // namespace rapt::detail
