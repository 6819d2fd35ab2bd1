#include "train/data/packed_batch.h"

#include "base/check.h"
#include "base/indexed_vector.h"

namespace rapt::detail {
namespace {

/// Tokens of an item up to the last whose target counts; one at least.
Index used_tokens(const Batch& batch, Index item) {
  Index used = batch.tokens;
  while (used > 1 && element(batch.targets, item * batch.tokens + used - 1) < 0) --used;
  return used;
}

void add_tokens(PackedBatch& to, const Batch& batch, Index first, Index count) {
  to.tokens.lengths.push_back(count);
  for (Index i = first; i < first + count; ++i) {
    const auto place = to_size(i);
    to.tokens.ids.push_back(batch.inputs[place]);
    to.targets.push_back(batch.targets[place]);
    to.places.push_back(place);
  }
}

void add_source(PackedBatch& to, const Batch& batch, Index item) {
  const Index length = element(batch.source_lengths, item);
  const auto first = batch.sources.begin() + item * batch.source_tokens;
  to.sources.ids.insert(to.sources.ids.end(), first, first + length);
  to.sources.lengths.push_back(length);
}

}  // namespace

PackedBatch packed(const Batch& batch) {
  PackedBatch made;
  if (!batch.documents.empty()) {
    Index first = 0;
    for (const Index length : batch.documents) {
      add_tokens(made, batch, first, length);
      first += length;
    }
    return made;
  }
  const bool translates = batch.source_tokens > 0;
  for (Index item = 0; item < batch.items; ++item) {
    add_tokens(made, batch, item * batch.tokens,
               translates ? used_tokens(batch, item) : batch.tokens);
    if (translates) add_source(made, batch, item);
  }
  return made;
}

std::vector<std::int32_t> PackedBatch::spread(std::span<const std::int32_t> numbers,
                                              const Batch& batch) const {
  check(numbers.size() == places.size(), "spread: ", numbers.size(), " numbers for ", places.size(),
        " tokens");
  std::vector<std::int32_t> all(batch.targets.size(), -1);
  for (std::size_t i = 0; i < places.size(); ++i) all[places[i]] = numbers[i];
  return all;
}

}  // namespace rapt::detail
