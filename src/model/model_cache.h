#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "base/access.h"
#include "base/indexed_vector.h"
#include "rapt/models/transformer.h"

namespace rapt {
using namespace detail;

struct ModelCache::Impl {
  Options options;
  IndexedVector<KvCache> layers;  // of the decoder; all have the same sequences
  IndexedVector<KvCache>
      sources;  // of an encoder-decoder: keys and values of the source of each sequence

  /// The tokens of a sequence, if angles depend on its length: keys that were rotated for one
  /// length are wrong for another, and the layers above have read their results.
  struct SequenceTokens {
    std::vector<std::int32_t> ids;
    Index rotated_for = 0;  // tokens
  };
  std::map<Index, SequenceTokens> tokens;
  bool keeps_tokens = false;

  /// A layer's pattern, limited to what the window keeps.
  Pattern pattern(const Pattern& of_layer) const {
    if (!options.window) return of_layer;
    return of_layer & (rapt::window(*options.window - 1, 0) | keys(options.pinned));
  }
};

}  // namespace rapt
